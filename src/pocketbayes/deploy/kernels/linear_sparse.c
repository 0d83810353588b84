/* The same as linear_dense, of the weights that are there. */
static void linear_sparse(const weights *w, const float *x, float *y, int rows, int inputs, int outputs)
{
    for (int r = 0; r < rows; r++, x += inputs, y += outputs) {
        cursor at = first_of(w);
        for (int o = 0; o < outputs; o++, at.place -= inputs) {
            float sum = 0;
            for (; at.place < inputs; to_next(&at))
                sum += (float)w->mean[at.number] * x[at.place];
            y[o] = sum * w->scale[o] + w->shift[o];
        }
    }
}
