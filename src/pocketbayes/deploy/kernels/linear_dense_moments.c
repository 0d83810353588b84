/* Mean W m + b, variance S (m^2 + v) + W^2 v + Var b, S the variances of W; v NULL: x is certain. */
static void linear_dense_moments(const weights *w, const float *m, const float *v, float *y, float *yv, int rows,
                                 int inputs, int outputs)
{
    for (int r = 0; r < rows; r++, m += inputs, v = v ? v + inputs : v, y += outputs, yv += outputs) {
        const mean_code *code = w->mean;
        const uint8_t *std = w->std;
        for (int o = 0; o < outputs; o++) {
            float sum = 0, own = 0, carried = 0;
            for (int i = 0; i < inputs; i++) {
                float c = (float)*code++, noise = v ? v[i] : 0;
                sum += c * m[i];
                carried += c * c * noise;
                own += std ? variances[*std++] * (m[i] * m[i] + noise) : 0;
            }
            y[o] = sum * w->scale[o] + w->shift[o];
            yv[o] = carried * w->scale[o] * w->scale[o] + own * (w->factor ? w->factor[o] : 1) + (w->noise ? w->noise[o] : 0);
        }
    }
}
