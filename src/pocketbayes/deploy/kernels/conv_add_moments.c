/* Mean w m, variance s (m^2 + v) + w^2 v of one weight of mean w and variance s; v NULL: x is certain. */
static void conv_add_moments(const window *g, float w, float s, int a, int b, const float *m, const float *v, float *y,
                             float *yv)
{
    int rows[2], columns[2];
    met(g, 0, a, &rows[0], &rows[1]);
    met(g, 1, b, &columns[0], &columns[1]);
    for (int i = rows[0]; i < rows[1]; i++) {
        int from = (i * g->stride[0] + a * g->dilation[0] - g->padding[0]) * g->side[1] + b * g->dilation[1] - g->padding[1];
        for (int j = columns[0]; j < columns[1]; j++) {
            float x = m[from + j * g->stride[1]], noise = v ? v[from + j * g->stride[1]] : 0;
            y[i * g->out[1] + j] += w * x;
            yv[i * g->out[1] + j] += s * (x * x + noise) + w * w * noise;
        }
    }
}
