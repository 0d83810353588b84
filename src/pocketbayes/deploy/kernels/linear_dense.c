/* y = scale (codes x) + shift, for rows of x. */
static void linear_dense(const weights *w, const float *x, float *y, int rows, int inputs, int outputs)
{
    for (int r = 0; r < rows; r++, x += inputs, y += outputs) {
        const mean_code *code = w->mean;
        for (int o = 0; o < outputs; o++) {
            float sum = 0;
            for (int i = 0; i < inputs; i++)
                sum += (float)*code++ * x[i];
            y[o] = sum * w->scale[o] + w->shift[o];
        }
    }
}
