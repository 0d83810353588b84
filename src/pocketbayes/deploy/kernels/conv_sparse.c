/* The same as conv_dense, of the weights that are there. */
static void conv_sparse(const weights *w, const window *g, const float *x, float *y)
{
    int size = g->out[0] * g->out[1], plane = g->side[0] * g->side[1], depth = g->channels / g->groups;
    int each = g->kernel[0] * g->kernel[1];
    cursor at = first_of(w);
    for (int o = 0; o < g->outputs; o++, y += size, at.place -= depth * each) {
        const float *from = x + o / (g->outputs / g->groups) * depth * plane;
        for (int i = 0; i < size; i++)
            y[i] = w->shift[o];
        for (; at.place < depth * each; to_next(&at))
            conv_add(g, (float)w->mean[at.number] * w->scale[o], at.place % each / g->kernel[1], at.place % g->kernel[1],
                     from + at.place / each * plane, y);
    }
}
