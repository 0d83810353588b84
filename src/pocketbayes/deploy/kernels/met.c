/* The outputs whose window has a number under place `at` of the kernel: begin to end along an axis. */
static void met(const window *g, int axis, int at, int *begin, int *end)
{
    int shift = at * g->dilation[axis] - g->padding[axis], stride = g->stride[axis];
    int last = g->side[axis] - 1 - shift;
    *begin = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
    *end = last < 0 ? 0 : last / stride + 1;
    *end = *end < g->out[axis] ? *end : g->out[axis];
}
