/* Adds one weight times all numbers of a channel that it meets. */
static void conv_add(const window *g, float w, int a, int b, const float *x, float *y)
{
    int rows[2], columns[2];
    met(g, 0, a, &rows[0], &rows[1]);
    met(g, 1, b, &columns[0], &columns[1]);
    for (int i = rows[0]; i < rows[1]; i++) {
        int from = (i * g->stride[0] + a * g->dilation[0] - g->padding[0]) * g->side[1] + b * g->dilation[1] - g->padding[1];
        for (int j = columns[0]; j < columns[1]; j++)
            y[i * g->out[1] + j] += w * x[from + j * g->stride[1]];
    }
}
