/* The same as conv_dense_moments, of the weights that are there. */
static void conv_sparse_moments(const weights *w, const window *g, const float *m, const float *v, float *y, float *yv)
{
    int size = g->out[0] * g->out[1], plane = g->side[0] * g->side[1], depth = g->channels / g->groups;
    int each = g->kernel[0] * g->kernel[1];
    cursor at = first_of(w);
    for (int o = 0; o < g->outputs; o++, y += size, yv += size, at.place -= depth * each) {
        float factor = w->factor ? w->factor[o] : 1;
        for (int i = 0; i < size; i++)
            y[i] = w->shift[o], yv[i] = w->noise ? w->noise[o] : 0;
        for (; at.place < depth * each; to_next(&at)) {
            int from = (o / (g->outputs / g->groups) * depth + at.place / each) * plane;
            conv_add_moments(g, (float)w->mean[at.number] * w->scale[o],
                             w->std ? variances[w->std[at.number]] * factor : 0, at.place % each / g->kernel[1],
                             at.place % g->kernel[1], m + from, v ? v + from : v, y, yv);
        }
    }
}
