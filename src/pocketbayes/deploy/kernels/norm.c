/* scale x + shift, channel by channel; of variances scale^2 v. */
static void norm(const float *scale, const float *shift, const float *x, float *y, int channels, int each)
{
    for (int c = 0; c < channels; c++)
        for (int i = c * each; i < (c + 1) * each; i++)
            y[i] = shift ? x[i] * scale[c] + shift[c] : x[i] * scale[c] * scale[c];
}
