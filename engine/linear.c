/* engine/linear.c: products of packed weights and inputs, dense by tiles, sparse row by row. */
#include "inside.h"
#include <math.h>
#include <string.h>

enum { WIDEST = 8, TILE = TILE_VECTORS * LANES, PITCH = WIDEST * LANES };
#define INLINE static inline __attribute__((always_inline))

/* sum[o][v] (+)= sum_k w[k][o] in[offset_k pitch + v], of few outputs and vectors, in registers. */
INLINE void tile(int vectors, const float *w, const float *in, const uint32_t *offset, size_t pitch, int depth,
                 float *sum, int add)
{
    lane total[TILE_OUTPUTS][TILE_VECTORS];
    for (int o = 0; o < TILE_OUTPUTS; o++)
        for (int v = 0; v < vectors; v++)
            total[o][v] = add ? *(const lane *)(sum + o * PITCH + v * LANES) : (lane){0};
    for (int k = 0; k < depth; k++) {
        const float *x = in + offset[k] * pitch;
        lane seen[TILE_VECTORS];
        for (int v = 0; v < vectors; v++)
            seen[v] = *(const lane *)(x + v * LANES);
        for (int o = 0; o < TILE_OUTPUTS; o++)
            for (int v = 0; v < vectors; v++)
                total[o][v] += seen[v] * w[(size_t)k * PACK + o];
    }
    for (int o = 0; o < TILE_OUTPUTS; o++)
        for (int v = 0; v < vectors; v++)
            *(lane *)(sum + o * PITCH + v * LANES) = total[o][v];
}

/* The same of one output and what is there of its weights; `parts` sums side by side hide latency. */
INLINE void sparse_tile(int vectors, int parts, const float *w, const float *in, const uint32_t *offset, size_t pitch,
                        int count, float *sum, int add)
{
    lane total[WIDEST];
    int j = 0;
    for (int t = 0; t < vectors * parts; t++)
        total[t] = add && t < vectors ? *(const lane *)(sum + t * LANES) : (lane){0};
    for (; j + parts <= count; j += parts)
        for (int p = 0; p < parts; p++)
            for (int v = 0; v < vectors; v++)
                total[p * vectors + v] += *(const lane *)(in + offset[j + p] * pitch + v * LANES) * w[j + p];
    for (; j < count; j++)
        for (int v = 0; v < vectors; v++)
            total[v] += *(const lane *)(in + offset[j] * pitch + v * LANES) * w[j];
    for (int t = vectors; t < vectors * parts; t++)
        total[t % vectors] += total[t];
    for (int v = 0; v < vectors; v++)
        *(lane *)(sum + v * LANES) = total[v];
}

static void dense_sums(const kernel *k, int plane, int group, int output, const float *in, size_t pitch, int vectors,
                       float *sum, int add)
{
    size_t blocks = (size_t)(k->outputs + PACK - 1) / PACK, depth = (size_t)k->depth;
    const float *w = k->values[plane] + (((size_t)group * blocks + (size_t)output / PACK) * depth) * PACK + output % PACK;
    const uint32_t *offset = k->offset;
    switch (vectors) {
    case 1: tile(1, w, in, offset, pitch, k->depth, sum, add); break;
    case 2: tile(2, w, in, offset, pitch, k->depth, sum, add); break;
    default: tile(TILE_VECTORS, w, in, offset, pitch, k->depth, sum, add); break;
    }
}

static void sparse_sums(const kernel *k, int plane, int output, const float *in, size_t pitch, int vectors, float *sum, int add)
{
    uint32_t first = k->start[output];
    const float *w = k->values[plane] + first;
    const uint32_t *offset = k->offset + first;
    int count = (int)(k->start[output + 1] - first);
    switch (vectors) {
    case 1: sparse_tile(1, 8, w, in, offset, pitch, count, sum, add); break;
    case 2: sparse_tile(2, 4, w, in, offset, pitch, count, sum, add); break;
    case 3: sparse_tile(3, 2, w, in, offset, pitch, count, sum, add); break;
    case 4: sparse_tile(4, 2, w, in, offset, pitch, count, sum, add); break;
    case 5: sparse_tile(5, 1, w, in, offset, pitch, count, sum, add); break;
    case 6: sparse_tile(6, 1, w, in, offset, pitch, count, sum, add); break;
    default: sparse_tile(8, 1, w, in, offset, pitch, count, sum, add); break;
    }
}

/* Where a linear operation reads and writes: columns are positions and examples. */
typedef struct layout {
    const float *in[3];                  /* means, second moments, variances; NULL: none */
    size_t group, pitch, columns;        /* inputs of a group; distance of two inputs; how many there are */
    size_t run, width;                   /* of every `run` columns, the first `width` are outputs */
    float *out, *out_variance;
    size_t output, step;                 /* distance of two outputs, of two columns */
} layout;

/* mean = (p M) scale + shift, variance = (p V + p (1 - p) M^2) scale^2 + shift of variances. */
INLINE void settle_run(const float *restrict sum, const float *restrict spread, float *restrict y, float *restrict z, size_t step,
                       size_t n, float p, float scale, float shift, float noise)
{
    float both = p * scale, own = p * scale * scale, apart = p * (1 - p) * scale * scale;
    for (size_t c = 0; c < n; c++)
        y[c * step] = sum[c] * both + shift;
    for (size_t c = 0; z && c < n; c++)
        z[c * step] = spread[c] * own + apart * sum[c] * sum[c] + noise;
}

static void settle(const run *r, const kernel *k, const layout *at, int output, size_t first, size_t count,
                   const float *sum, const float *spread)
{
    float p = k->gate && !r->drawn ? k->gate[output] : 1, scale = k->scale[output];
    float shift = k->shift[r->drawn ? DRAWN : MEAN][output], noise = spread ? k->shift[VARIANCE][output] : 0;
    float *y = at->out + (size_t)output * at->output, *z = spread ? at->out_variance + (size_t)output * at->output : NULL;
    for (size_t i = 0; i < count;) {
        size_t line = (first + i) / at->run, column = (first + i) % at->run;
        if (column >= at->width) {
            i += at->run - column;
            continue;
        }
        size_t n = at->width - column < count - i ? at->width - column : count - i;
        size_t to = (line * at->width + column) * at->step;
        if (at->step == 1)
            settle_run(sum + i, spread ? spread + i : NULL, y + to, z ? z + to : NULL, 1, n, p, scale, shift, noise);
        else
            settle_run(sum + i, spread ? spread + i : NULL, y + to, z ? z + to : NULL, at->step, n, p, scale, shift, noise);
        i += n;
    }
}

static void multiply(const run *r, const kernel *k, const layout *at)
{
    float sum[TILE_OUTPUTS * PITCH], spread[TILE_OUTPUTS * PITCH];
    int most = k->is_sparse ? WIDEST : TILE_VECTORS, step = k->is_sparse ? 1 : TILE_OUTPUTS;
    int planes[3] = {r->drawn ? DRAWN : MEAN, VARIANCE, SQUARE};
    for (size_t c = 0; c < at->columns;) {
        size_t left = at->columns - c, vectors = (left + LANES - 1) / LANES;
        if (vectors > (size_t)most)
            vectors = (size_t)most;
        size_t count = vectors * LANES < left ? vectors * LANES : left;
        for (int g = 0; g < k->groups; g++) {
            for (int o = 0; o < k->outputs; o += step) {
                memset(spread, 0, at->out_variance ? sizeof *spread * (size_t)(step * PITCH) : 0);
                for (int i = 0; i < 3; i++) {
                    const float *in = at->in[i];
                    if (!in || (i > 0 && (!at->out_variance || !k->values[planes[i]])))
                        continue;
                    in += (size_t)g * at->group * at->pitch + c;
                    if (k->is_sparse)
                        sparse_sums(k, planes[i], g * k->outputs + o, in, at->pitch, (int)vectors, i ? spread : sum, i > 0);
                    else
                        dense_sums(k, planes[i], g, o, in, at->pitch, (int)vectors, i ? spread : sum, i > 0);
                }
                for (int j = 0; j < step && o + j < k->outputs; j++)
                    settle(r, k, at, g * k->outputs + o + j, c, count, sum + j * PITCH,
                           at->out_variance ? spread + j * PITCH : NULL);
            }
        }
        c += count;
    }
}

/* One column: sums of `blocks` blocks of PACK outputs, whose weights lie side by side. */
INLINE void column_sums(int blocks, const float *w, size_t block, const float *x, int depth, float *sum, int add)
{
    enum { VECTORS = PACK / LANES };
    lane total[8][VECTORS];
    for (int b = 0; b < blocks; b++)
        for (int v = 0; v < VECTORS; v++)
            total[b][v] = add ? *(const lane *)(sum + b * PACK + v * LANES) : (lane){0};
    for (int k = 0; k < depth; k++)
        for (int b = 0; b < blocks; b++)
            for (int v = 0; v < VECTORS; v++)
                total[b][v] += *(const lane *)(w + (size_t)b * block + (size_t)k * PACK + v * LANES) * x[k];
    for (int b = 0; b < blocks; b++)
        for (int v = 0; v < VECTORS; v++)
            *(lane *)(sum + b * PACK + v * LANES) = total[b][v];
}

static void one_column(const run *r, const kernel *k, const layout *at)
{
    float sum[4 * PACK], spread[4 * PACK];
    int planes[3] = {r->drawn ? DRAWN : MEAN, VARIANCE, SQUARE};
    size_t block = (size_t)k->depth * PACK;
    for (int o = 0; o < k->outputs; o += k->is_sparse ? 1 : 4 * PACK) {
        memset(spread, 0, sizeof spread);
        for (int i = 0; i < 3; i++) {
            const float *x = at->in[i], *w = k->values[planes[i]];
            float *into = i ? spread : sum;
            if (!x || !w || (i > 0 && !at->out_variance))
                continue;
            if (k->is_sparse) {
                float total = i ? *into : 0;
                for (uint32_t j = k->start[o]; j < k->start[o + 1]; j++)
                    total += w[j] * x[k->offset[j]];
                *into = total;
            } else if (k->outputs - o > 3 * PACK) {
                column_sums(4, w + (size_t)(o / PACK) * block, block, x, k->depth, into, i > 0);
            } else {
                for (int b = 0; b < 4 && o + b * PACK < k->outputs; b++)
                    column_sums(1, w + (size_t)(o / PACK + b) * block, block, x, k->depth, into + b * PACK, i > 0);
            }
        }
        for (int j = 0; j < (k->is_sparse ? 1 : 4 * PACK) && o + j < k->outputs; j++)
            settle(r, k, at, o + j, 0, 1, sum + j, at->out_variance ? spread + j : NULL);
    }
}

/* m^2 + v, number by number; of a certain input m^2. */
static const float *second_moments(const float *m, const float *v, size_t n, float *second)
{
    if (v)
        for (size_t i = 0; i < n; i++)
            second[i] = m[i] * m[i] + v[i];
    else
        for (size_t i = 0; i < n; i++)
            second[i] = m[i] * m[i];
    return second;
}

static const float *transposed(const float *x, size_t rows, size_t columns, float *y)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            y[j * rows + i] = x[i * columns + j];
    return y;
}

/* y = A x + b of (rows, I, R) into (rows, O, R); moments, if yv is not NULL. */
void apply_rows(const run *r, const kernel *k, size_t rows, const float *m, const float *v, float *y, float *yv)
{
    size_t inputs = (size_t)k->depth, outputs = (size_t)k->outputs, n = rows * inputs * r->lanes;
    float *work = scratch_of(r);
    layout at = {{m, NULL, v}, inputs, r->lanes, r->lanes, r->lanes, r->lanes, y, yv, r->lanes, 1};
    if (r->lanes == 1 && rows >= LANES) {
        size_t room = n + SLACK;
        at.in[0] = transposed(m, rows, inputs, work);
        at.in[2] = v ? transposed(v, rows, inputs, work + 2 * room) : NULL;
        at.in[1] = yv && k->values[VARIANCE] ? second_moments(at.in[0], at.in[2], n, work + room) : NULL;
        at.pitch = at.columns = at.run = at.width = rows;
        at.output = 1, at.step = outputs;
        multiply(r, k, &at);
        return;
    }
    const float *second = yv && k->values[VARIANCE] ? second_moments(m, v, n, work) : NULL;
    for (size_t i = 0; i < rows; i++) {
        at.in[0] = m + i * inputs * r->lanes;
        at.in[1] = second ? second + i * inputs * r->lanes : NULL;
        at.in[2] = v ? v + i * inputs * r->lanes : NULL;
        at.out = y + i * outputs * r->lanes;
        at.out_variance = yv ? yv + i * outputs * r->lanes : NULL;
        if (r->lanes == 1)
            one_column(r, k, &at);
        else
            multiply(r, k, &at);
    }
}

static void linear_op(run *r, const operation *op, int with_variance)
{
    const kernel *k = &r->member->kernels[op->first_kernel];
    size_t rows = slot_of(r, op->x[0])->size / (size_t)k->depth;
    apply_rows(r, k, rows, mean_of(r, op->x[0]), with_variance ? variance_of(r, op->x[0]) : NULL, mean_of(r, op->result),
               with_variance ? variance_of(r, op->result) : NULL);
}

void mean_linear(run *r, const operation *op) { linear_op(r, op, 0); }
void moments_linear(run *r, const operation *op) { linear_op(r, op, 1); }

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

/* A line of the padded input: zeros, every `stride`-th number from `first` on, zeros. */
static void padded_line(const float *x, size_t side, size_t first, size_t stride, size_t padding, size_t wide, size_t lanes,
                        float *to)
{
    size_t begin = first >= padding ? 0 : (padding - first + stride - 1) / stride, end = begin;
    if (side + padding > first)
        end = (side + padding - first + stride - 1) / stride;
    end = end < wide ? end : wide;
    begin = begin < end ? begin : end;
    memset(to, 0, begin * lanes * sizeof *to);
    if (stride == 1)
        memcpy(to + begin * lanes, x + (begin + first - padding) * lanes, (end - begin) * lanes * sizeof *to);
    else
        for (size_t j = begin; j < end; j++)
            for (size_t l = 0; l < lanes; l++)
                to[j * lanes + l] = x[(j * stride + first - padding) * lanes + l];
    memset(to + end * lanes, 0, (wide - end) * lanes * sizeof *to);
}

static const float *padded(const geometry *g, const float *x, float *wide, size_t lanes)
{
    float *to = wide;
    for (size_t c = 0; c < g->channels; c++, x += g->side[0] * g->side[1] * lanes)
        for (size_t py = 0; py < g->phases[0]; py++)
            for (size_t px = 0; px < g->phases[1]; px++)
                for (size_t i = 0; i < g->wide[0]; i++, to += g->wide[1] * lanes) {
                    size_t row = i * g->stride[0] + py - g->padding[0];   /* below 0 it wraps, and is large */
                    if (row >= g->side[0])
                        memset(to, 0, g->wide[1] * lanes * sizeof *to);
                    else
                        padded_line(x + row * g->side[1] * lanes, g->side[1], px, g->stride[1], g->padding[1], g->wide[1],
                                    lanes, to);
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
    if (!as_it_is) {
        m = padded(&g, m, work, r->lanes);
        v = v ? padded(&g, v, work + 2 * room, r->lanes) : NULL;
    }
    if (with_variance && k->values[VARIANCE])
        second = second_moments(m, v, n, work + room);
    layout at = {{m, second, v}, g.channels / (size_t)k->groups * g.plane, r->lanes,
                 ((g.out[0] - 1) * g.wide[1] + g.out[1]) * r->lanes, g.wide[1] * r->lanes, g.out[1] * r->lanes,
                 mean_of(r, op->result), with_variance ? variance_of(r, op->result) : NULL,
                 g.out[0] * g.out[1] * r->lanes, 1};
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

/* Inputs as kernels want them: means, second moments, variances. */
size_t linear_scratch(const pocket *m, const operation *op)
{
    const slot *x = &m->slots[op->x[0] >= 0 ? op->x[0] : m->weight_slot[-1 - op->x[0]]];
    size_t n = x->size;
    if (op->row->code == 2) {
        geometry g = geometry_of(x, &m->slots[op->result], &m->file->weights[-1 - op->x[1]], op);
        n = g.channels * g.plane;
    } else if (op->row->code != 1) {      /* recurrences: states, too */
        size_t width = (size_t)m->slots[op->result].shape.side[1];
        n = n > width ? n : width;
    }
    return 3 * (n + SLACK);
}
