/* The same as linear_dense_moments, of the weights that are there. */
static void linear_sparse_moments(const weights *w, const float *m, const float *v, float *y, float *yv, int rows,
                                  int inputs, int outputs)
{
    for (int r = 0; r < rows; r++, m += inputs, v = v ? v + inputs : v, y += outputs, yv += outputs) {
        cursor at = first_of(w);
        for (int o = 0; o < outputs; o++, at.place -= inputs) {
            float sum = 0, own = 0, carried = 0;
            for (; at.place < inputs; to_next(&at)) {
                float c = (float)w->mean[at.number], x = m[at.place], noise = v ? v[at.place] : 0;
                sum += c * x;
                carried += c * c * noise;
                own += w->std ? variances[w->std[at.number]] * (x * x + noise) : 0;
            }
            y[o] = sum * w->scale[o] + w->shift[o];
            yv[o] = carried * w->scale[o] * w->scale[o] + own * (w->factor ? w->factor[o] : 1) + (w->noise ? w->noise[o] : 0);
        }
    }
}
