/* Means over positions of channels: number i of channel c is x[c * channel + i * position]. */
static void features(const float *x, float *y, int channels, int channel, int positions, int position)
{
    for (int c = 0; c < channels; c++) {
        float sum = 0;
        for (int i = 0; i < positions; i++)
            sum += x[c * channel + i * position];
        y[c] = sum / (float)positions;
    }
}
