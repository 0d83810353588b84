/* engine/linear.c: products of packed weights and inputs, dense by tiles, sparse row by row. */
#include "linear.h"
#include <math.h>

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

#ifdef __wasm__                          /* the page is small */
enum { HAS_BOTH = 0 };
#define both_sums(...) (void)0
#else
enum { HAS_BOTH = 1 };
/* Means and variances together, sum w m and sum Var w (m^2 + v) + w^2 v: inputs are read twice, not three times. */
INLINE void both_tile(int vectors, const kernel *k, uint32_t first, int count, const float *m, const float *v, size_t pitch,
                      float *sum, float *spread, int add)
{
    const float *w = k->values[MEAN] + first, *own = k->values[VARIANCE] + first, *square = k->values[SQUARE] + first;
    const uint32_t *offset = k->offset + first;
    lane total[WIDEST], noise[WIDEST];
    for (int t = 0; t < vectors; t++) {
        total[t] = add ? *(const lane *)(sum + t * LANES) : (lane){0};
        noise[t] = add ? *(const lane *)(spread + t * LANES) : (lane){0};
    }
    for (int j = 0; j < count; j++)
        for (int t = 0; t < vectors; t++) {
            lane a = *(const lane *)(m + offset[j] * pitch + t * LANES), b = *(const lane *)(v + offset[j] * pitch + t * LANES);
            total[t] += a * w[j];
            noise[t] += (a * a + b) * own[j] + b * square[j];
        }
    for (int t = 0; t < vectors; t++) {
        *(lane *)(sum + t * LANES) = total[t];
        *(lane *)(spread + t * LANES) = noise[t];
    }
}

static void both_sums(const kernel *k, int part, const float *m, const float *v, size_t pitch, int vectors, float *sum,
                      float *spread, int add)
{
    uint32_t first = k->start[part];
    int count = (int)(k->start[part + 1] - first);
    switch (vectors) {
    case 1: both_tile(1, k, first, count, m, v, pitch, sum, spread, add); break;
    case 2: both_tile(2, k, first, count, m, v, pitch, sum, spread, add); break;
    case 3: both_tile(3, k, first, count, m, v, pitch, sum, spread, add); break;
    case 4: both_tile(4, k, first, count, m, v, pitch, sum, spread, add); break;
    case 5: both_tile(5, k, first, count, m, v, pitch, sum, spread, add); break;
    case 6: both_tile(6, k, first, count, m, v, pitch, sum, spread, add); break;
    default: both_tile(8, k, first, count, m, v, pitch, sum, spread, add); break;
    }
}
#endif

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

static void sparse_sums(const kernel *k, int plane, int part, const float *in, size_t pitch, int vectors, float *sum, int add)
{
    uint32_t first = k->start[part];
    const float *w = k->values[plane] + first;
    const uint32_t *offset = k->offset + first;
    int count = (int)(k->start[part + 1] - first);
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

/* Columns that go side by side into the output: of the sums, of the output. */
typedef struct piece { size_t from, to, count; } piece;

static int pieces_of(const layout *at, size_t first, size_t count, piece *list)
{
    size_t line = first / at->run, column = first % at->run, i = 0;
    int found = 0;
    for (; i < count; i += at->run - column, column = 0, line++) {
        size_t end = column + count - i < at->width ? column + count - i : at->width;
        if (column < end)
            list[found++] = (piece){i, (line * at->width + column) * at->step, end - column};
    }
    return found;
}

/* mean = (p M) scale + shift, variance = (p V + p (1 - p) M^2) scale^2 + shift of variances; `n` sums or more. */
static void settle(const run *r, const kernel *k, const layout *at, int output, const piece *list, int pieces, size_t n,
                   float *restrict sum, float *restrict spread)
{
    float p = k->gate && !r->drawn ? k->gate[output] : 1, scale = k->scale[output];
    float shift = k->shift[r->drawn ? DRAWN : MEAN][output], noise = spread ? k->shift[VARIANCE][output] : 0;
    float *to[2] = {at->out + (size_t)output * at->output, spread ? at->out_variance + (size_t)output * at->output : NULL};
    float both = p * scale, own = p * scale * scale, apart = p * (1 - p) * scale * scale;
    for (size_t c = 0; spread && c < n; c++)
        spread[c] = spread[c] * own + apart * sum[c] * sum[c] + noise;
    for (size_t c = 0; c < n; c++)
        sum[c] = sum[c] * both + shift;
    for (int i = 0; i < (spread ? 2 : 1); i++)
        for (const piece *from = list; from < list + pieces; from++) {
            const float *x = (i ? spread : sum) + from->from;
            float *y = to[i] + from->to;
            if (at->step == 1)
                copy_few(x, y, from->count);
            else
                for (size_t c = 0; c < from->count; c++)
                    y[c * at->step] = x[c];
        }
}

void multiply(const run *r, const kernel *k, const layout *at)
{
    float sum[TOGETHER * PITCH], spread[TOGETHER * PITCH];
    piece list[PITCH];
    int together = HAS_BOTH && k->is_sparse && at->out_variance && at->in[2] && k->values[VARIANCE];
    int most = !k->is_sparse ? TILE_VECTORS : at->out_variance && LANES < 16 ? WIDEST / 2 : WIDEST, step = k->is_sparse ? TOGETHER : TILE_OUTPUTS;
    int planes[3] = {r->drawn ? DRAWN : MEAN, VARIANCE, SQUARE};
    for (size_t c = 0; c < at->columns;) {
        size_t left = at->columns - c, vectors = (left + LANES - 1) / LANES;
        if (vectors > (size_t)most)
            vectors = (size_t)most;
        size_t count = vectors * LANES < left ? vectors * LANES : left;
        int pieces = pieces_of(at, c, count, list);
        for (int g = 0; g < k->groups; g++) {
            for (int o = 0; o < k->outputs; o += step) {
                int outputs = k->outputs - o < step ? k->outputs - o : step;
                memset(spread, 0, at->out_variance ? sizeof *spread * (size_t)(step * PITCH) : 0);
                if (HAS_CODES && at->codes)
                    code_sums(k, g, o, at, c, (int)vectors, sum);
                for (int n = HAS_CODES && at->codes ? 3 * k->parts : 0; n < 3 * k->parts; n++) {
                    int i = n % 3, part = n / 3;
                    const float *in = at->in[i];
                    if (!in || (i > 0 && together) || (i > 0 && (!at->out_variance || !k->values[planes[i]])))
                        continue;
                    in += (size_t)g * at->group * at->pitch + c;
                    for (int j = 0; together && j < outputs; j++)
                        both_sums(k, (g * k->outputs + o + j) * k->parts + part, in, at->in[2] + (in - at->in[0]), at->pitch,
                                  (int)vectors, sum + j * PITCH, spread + j * PITCH, n > 0);
                    for (int j = 0; k->is_sparse && !together && j < outputs; j++)
                        sparse_sums(k, planes[i], (g * k->outputs + o + j) * k->parts + part, in, at->pitch, (int)vectors,
                                    (i ? spread : sum) + j * PITCH, n > 0);
                    if (!k->is_sparse)
                        dense_sums(k, planes[i], g, o, in, at->pitch, (int)vectors, i ? spread : sum, i > 0);
                }
                for (int j = 0; j < outputs; j++)
                    settle(r, k, at, g * k->outputs + o + j, list, pieces, vectors * LANES, sum + j * PITCH,
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
            settle(r, k, at, o + j, &(piece){0, 0, 1}, 1, 1, sum + j, at->out_variance ? spread + j : NULL);
    }
}

const float *second_moments(const float *m, const float *v, size_t n, float *second)
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
    layout at = {{m, NULL, v}, inputs, r->lanes, r->lanes, r->lanes, r->lanes, y, yv, r->lanes, 1, NULL};
    codes found;
    at.codes = HAS_CODES && k->codes && !yv && !r->drawn ? &found : NULL;
    if (r->lanes == 1 && rows >= LANES) {
        size_t room = n + SLACK;
        at.in[0] = transposed(m, rows, inputs, work);
        at.in[2] = v ? transposed(v, rows, inputs, work + 2 * room) : NULL;
        at.in[1] = yv && k->values[VARIANCE] ? second_moments(at.in[0], at.in[2], n, work + room) : NULL;
        at.pitch = at.columns = at.run = at.width = rows;
        at.output = 1, at.step = outputs;
        if (HAS_CODES && at.codes)
            encode(at.in[0], 1, inputs, rows, 1, (four *)(work + room), &found);
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
        if (HAS_CODES && at.codes)
            encode(at.in[0], 1, inputs, r->lanes, r->lanes, (four *)work, &found);
        if (HAS_CODES && at.codes && r->lanes == 1)
            code_column(k, &at);
        else if (r->lanes == 1)
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
