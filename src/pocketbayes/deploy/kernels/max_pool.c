/* The largest number of each window; v not NULL: the variances of the winners, where noise is common. */
static void max_pool(const window *g, const float *x, const float *v, float *y, float *yv)
{
    for (int c = 0; c < g->channels; c++, x += g->side[0] * g->side[1], v = v ? v + g->side[0] * g->side[1] : v)
        for (int i = 0; i < g->out[0]; i++)
            for (int j = 0; j < g->out[1]; j++, y++, yv = yv ? yv + 1 : yv) {
                int best = -1;
                for (int a = 0; a < g->kernel[0]; a++)
                    for (int b = 0; b < g->kernel[1]; b++) {
                        int row = i * g->stride[0] + a * g->dilation[0] - g->padding[0];
                        int column = j * g->stride[1] + b * g->dilation[1] - g->padding[1];
                        int at = row * g->side[1] + column;
                        if (row < 0 || row >= g->side[0] || column < 0 || column >= g->side[1])
                            continue;
                        best = best < 0 || x[at] > x[best] || x[at] != x[at] ? at : best;   /* NaN wins */
                    }
                *y = best < 0 ? 0 : x[best];
                if (v)
                    *yv = best < 0 ? 0 : v[best];
            }
}
