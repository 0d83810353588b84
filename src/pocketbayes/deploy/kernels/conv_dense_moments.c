/* The same of means and variances. */
static void conv_dense_moments(const weights *w, const window *g, const float *m, const float *v, float *y, float *yv)
{
    int size = g->out[0] * g->out[1], plane = g->side[0] * g->side[1], depth = g->channels / g->groups, k = 0;
    for (int o = 0; o < g->outputs; o++, y += size, yv += size) {
        int from = o / (g->outputs / g->groups) * depth * plane;
        float factor = w->factor ? w->factor[o] : 1;
        for (int i = 0; i < size; i++)
            y[i] = w->shift[o], yv[i] = w->noise ? w->noise[o] : 0;
        for (int c = 0; c < depth; c++, from += plane)
            for (int a = 0; a < g->kernel[0]; a++)
                for (int b = 0; b < g->kernel[1]; b++, k++)
                    conv_add_moments(g, (float)w->mean[k] * w->scale[o], w->std ? variances[w->std[k]] * factor : 0, a, b,
                                     m + from, v ? v + from : v, y, yv);
    }
}
