/* Variances of the last layer's outputs, for a certain x. */
static void last_dense(const weights *w, const float *x, float *y, int inputs, int outputs)
{
    const uint8_t *std = w->std;
    for (int o = 0; o < outputs; o++) {
        y[o] = w->noise ? w->noise[o] : 0;
        for (int i = 0; i < inputs; i++)
            y[o] += variances[*std++] * x[i] * x[i];
    }
}
