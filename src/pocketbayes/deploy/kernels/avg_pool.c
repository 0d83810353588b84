/* Where window i begins and ends inside, and how many places it has with counted padding. */
static void bounds(const window *g, int axis, int i, int *begin, int *end, int *room)
{
    if (!g->stride[axis]) {              /* adaptive: windows share the side among them */
        *begin = i * g->side[axis] / g->out[axis];
        *end = ((i + 1) * g->side[axis] + g->out[axis] - 1) / g->out[axis];
        *room = *end - *begin;
        return;
    }
    int first = i * g->stride[axis] - g->padding[axis], last = first + g->kernel[axis];
    *room = (last < g->side[axis] + g->padding[axis] ? last : g->side[axis] + g->padding[axis]) - first;
    *begin = first > 0 ? first : 0;
    *end = last < g->side[axis] ? last : g->side[axis];
}

/* Means of windows. Of variances (how: 1) a mean times the weight of one number; where noise is common (2)
   the square of a mean of stds. */
static void avg_pool(const window *g, const float *x, float *y, int how)
{
    for (int c = 0; c < g->channels; c++, x += g->side[0] * g->side[1])
        for (int i = 0; i < g->out[0]; i++)
            for (int j = 0; j < g->out[1]; j++, y++) {
                int begin[2], end[2], room[2];
                float sum = 0, more = 1;
                bounds(g, 0, i, &begin[0], &end[0], &room[0]);
                bounds(g, 1, j, &begin[1], &end[1], &room[1]);
                for (int a = begin[0]; a < end[0]; a++)
                    for (int b = begin[1]; b < end[1]; b++)
                        sum += how == 2 ? sqrtf(x[a * g->side[1] + b]) : x[a * g->side[1] + b];
                float all = (float)(room[0] * room[1]), inside = (float)((end[0] - begin[0]) * (end[1] - begin[1]));
                float kernel = (float)(g->kernel[0] * g->kernel[1]), share = 1 / (g->counted ? all : inside);
                if (how == 1)
                    more = !g->stride[0] ? share : g->counted ? 1 / kernel : all / (kernel * inside);
                *y = sum * share * (how == 2 ? sum * share : more);
            }
}
