/* For each output its shift, and weight after weight what it meets. */
static void conv_dense(const weights *w, const window *g, const float *x, float *y)
{
    int size = g->out[0] * g->out[1], plane = g->side[0] * g->side[1], depth = g->channels / g->groups;
    const mean_code *code = w->mean;
    for (int o = 0; o < g->outputs; o++, y += size) {
        const float *from = x + o / (g->outputs / g->groups) * depth * plane;
        for (int i = 0; i < size; i++)
            y[i] = w->shift[o];
        for (int c = 0; c < depth; c++)
            for (int a = 0; a < g->kernel[0]; a++)
                for (int b = 0; b < g->kernel[1]; b++, code++)
                    if (*code)
                        conv_add(g, (float)*code * w->scale[o], a, b, from + c * plane, y);
    }
}
