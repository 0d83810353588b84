/* engine/convolutions.c: inputs with padding around them, so that a convolution is a product. */
#include "linear.h"

/* The padded input of a convolution, one plane for each remainder of places by the stride, so that
   neighbours of a window always lie side by side. */
typedef struct geometry {
    int axes;
    size_t side[2], kernel[2], stride[2], padding[2], dilation[2], phases[2], wide[2], out[2], channels, plane;
} geometry;

static geometry geometry_of(const slot *x, const slot *y, const pocket_weight *w, const operation *op)
{
    geometry g = {.side = {1, 1}, .kernel = {1, 1}, .stride = {1, 1}, .padding = {0, 0}, .dilation = {1, 1}, .out = {1, 1}};
    g.axes = w->rank - 2;
    for (int i = 0; i < g.axes; i++) {
        int a = 2 - g.axes + i;
        g.side[a] = (size_t)x->shape.side[1 + i], g.out[a] = (size_t)y->shape.side[1 + i];
        g.kernel[a] = (size_t)w->shape[2 + i], g.stride[a] = (size_t)op->l[0].at[i];
        g.padding[a] = (size_t)op->l[1].at[i], g.dilation[a] = (size_t)op->l[2].at[i];
    }
    g.channels = (size_t)x->shape.side[0];
    g.plane = 1;
    for (int a = 0; a < 2; a++) {
        size_t span = (g.kernel[a] - 1) * g.dilation[a];
        g.phases[a] = g.stride[a] < span + 1 ? g.stride[a] : span + 1;
        g.wide[a] = g.out[a] + span / g.stride[a];
        g.plane *= g.phases[a] * g.wide[a];
    }
    return g;
}

/* Where input k of a group lies: channel, place of the kernel. */
static uint32_t offset_in(const geometry *g, size_t k)
{
    size_t x = k % g->kernel[1] * g->dilation[1], y = k / g->kernel[1] % g->kernel[0] * g->dilation[0];
    size_t c = k / (g->kernel[0] * g->kernel[1]);
    size_t phase = y % g->stride[0] * g->phases[1] + x % g->stride[1];
    size_t place = y / g->stride[0] * g->wide[1] + x / g->stride[1];
    return (uint32_t)(c * g->plane + phase * g->wide[0] * g->wide[1] + place);
}

/* A line of the padded input, among zeros: every `stride`-th number from `first` on. */
static void padded_line(const float *x, size_t side, size_t first, size_t stride, size_t padding, size_t wide, size_t lanes,
                        float *to)
{
    size_t begin = first >= padding ? 0 : (padding - first + stride - 1) / stride, end = begin;
    if (side + padding > first)
        end = (side + padding - first + stride - 1) / stride;
    end = end < wide ? end : wide;
    begin = begin < end ? begin : end;
    if (stride == 1)
        copy_few(x + (begin + first - padding) * lanes, to + begin * lanes, (end - begin) * lanes);
    else
        for (size_t j = begin; j < end; j++)
            for (size_t l = 0; l < lanes; l++)
                to[j * lanes + l] = x[(j * stride + first - padding) * lanes + l];
}

static const float *padded(const geometry *g, const float *x, float *wide, size_t lanes, const codes *ground)
{
    float *to = wide;
    for (size_t c = 0; c < g->channels; c++, x += g->side[0] * g->side[1] * lanes) {
        memset(to, HAS_CODES && ground ? ground->zero[0] : 0, g->plane * lanes * sizeof *to);
        for (size_t i = 0; HAS_CODES && ground && lanes > 1 && i < g->plane * lanes; i++)
            ((four *)to)[i] = (uint32_t)ground->zero[i % ROWS] * 0x01010101u;
        for (size_t py = 0; py < g->phases[0]; py++)
            for (size_t px = 0; px < g->phases[1]; px++)
                for (size_t i = 0; i < g->wide[0]; i++, to += g->wide[1] * lanes) {
                    size_t row = i * g->stride[0] + py - g->padding[0];   /* below 0 it wraps, and is large */
                    if (row < g->side[0])
                        padded_line(x + row * g->side[1] * lanes, g->side[1], px, g->stride[1], g->padding[1], g->wide[1],
                                    lanes, to);
                }
    }
    return wide;
}

static void conv_op(run *r, const operation *op, int with_variance)
{
    const kernel *k = &r->member->kernels[op->first_kernel];
    const slot *out = slot_of(r, op->result);
    geometry g = geometry_of(slot_of(r, op->x[0]), out, &r->model->file->weights[r->member->first + (uint32_t)(-1 - op->x[1])], op);
    size_t n = g.channels * g.plane * r->lanes, room = n + SLACK;
    int as_it_is = g.padding[0] + g.padding[1] == 0 && g.stride[0] * g.stride[1] == 1;
    float *work = scratch_of(r);
    const float *m = mean_of(r, op->x[0]), *v = with_variance ? variance_of(r, op->x[0]) : NULL, *second = NULL;
    codes found, *by = HAS_CODES && k->codes && !with_variance && !r->drawn ? &found : NULL;
    if (HAS_CODES && by) {
        size_t each = g.channels / (size_t)k->groups, columns = g.side[0] * g.side[1] * r->lanes;
        encode(m, (size_t)k->groups, each, columns, r->lanes, (four *)work, by);
        g.channels = (each + 3) / 4 * (size_t)k->groups;
        m = work, work += g.channels * columns + SLACK;
    }
    if (!as_it_is) {
        m = padded(&g, m, work, r->lanes, by);
        v = v ? padded(&g, v, work + 2 * room, r->lanes, NULL) : NULL;
    }
    found.words = (const four *)m;
    if (with_variance && k->values[VARIANCE])
        second = second_moments(m, v, n, work + room);
    layout at = {{m, second, v}, g.channels / (size_t)k->groups * g.plane, r->lanes,
                 ((g.out[0] - 1) * g.wide[1] + g.out[1]) * r->lanes, g.wide[1] * r->lanes, g.out[1] * r->lanes,
                 mean_of(r, op->result), with_variance ? variance_of(r, op->result) : NULL,
                 g.out[0] * g.out[1] * r->lanes, 1, by};
    multiply(r, k, &at);
}

void mean_conv(run *r, const operation *op) { conv_op(r, op, 0); }
void moments_conv(run *r, const operation *op) { conv_op(r, op, 1); }

void conv_offsets(const pocket *m, const operation *op, uint32_t *offsets, uint32_t count)
{
    geometry g = geometry_of(&m->slots[op->x[0] >= 0 ? op->x[0] : m->weight_slot[-1 - op->x[0]]], &m->slots[op->result],
                             &m->file->weights[-1 - op->x[1]], op);
    for (uint32_t k = 0; k < count; k++)
        offsets[k] = offset_in(&g, k);
}

#ifndef __wasm__
/* In how many parts rows of a sparse convolution are summed, so that what is read stays in the first cache. */
int parts_of(const pocket *m, const operation *op, uint32_t each)
{
    enum { NEAR = 6144, LEAST = 16, MOST = 8 };
    geometry g = geometry_of(&m->slots[op->x[0] >= 0 ? op->x[0] : m->weight_slot[-1 - op->x[0]]], &m->slots[op->result],
                             &m->file->weights[-1 - op->x[1]], op);
    size_t lanes = m->is_small ? ROWS : 1, span = PITCH / lanes + g.kernel[0] * g.wide[1];
    size_t read = (span < g.wide[0] * g.wide[1] ? span : g.wide[0] * g.wide[1]) * g.phases[0] * g.phases[1] * lanes;
    size_t parts = read * (g.channels / (size_t)op->n[0]) / NEAR + 1;
    parts = parts < each / LEAST ? parts : each / LEAST;
    return parts < 1 ? 1 : parts > MOST ? MOST : (int)parts;
}
#endif

/* Inputs as kernels want them: means, second moments, variances. */
size_t linear_scratch(const pocket *m, const operation *op)
{
    const slot *x = &m->slots[op->x[0] >= 0 ? op->x[0] : m->weight_slot[-1 - op->x[0]]];
    size_t n = x->size;
    if (op->row->code == 2) {
        geometry g = geometry_of(x, &m->slots[op->result], &m->file->weights[-1 - op->x[1]], op);
        n = g.channels * g.plane;
        if (HAS_CODES && m->options.int8) {         /* words as they are, then padded */
            size_t words = ((g.channels / (size_t)op->n[0] + 3) / 4 * (size_t)op->n[0]) * (g.side[0] * g.side[1] + g.plane);
            n = words / 3 + 1 > n ? words / 3 + 1 : n;
        }
    } else if (op->row->code != 1) {      /* recurrences: states, too */
        size_t width = (size_t)m->slots[op->result].shape.side[1];
        n = n > width ? n : width;
    }
    return 3 * (n + SLACK);
}
