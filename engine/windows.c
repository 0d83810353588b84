/* engine/windows.c: poolings. */
#include "inside.h"
#include "scalars.h"

/* A window over the last two axes: where it begins and ends inside of the input, for both axes. */
typedef struct pool {
    size_t planes, side[2], out[2], kernel[2], stride[2], padding[2], dilation[2];
    int counted;
} pool;

static pool pool_of(const run *r, const operation *op)
{
    const shape *x = &slot_of(r, op->x[0])->shape, *y = &slot_of(r, op->result)->shape;
    int axes = op->l[0].count, dilated = op->row->code == 24;
    pool p = {slot_of(r, op->x[0])->size, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {1, 1}, op->n[1]};
    for (int i = 0; i < axes; i++) {
        int a = 2 - axes + i;
        p.side[a] = (size_t)x->side[x->rank - axes + i], p.out[a] = (size_t)y->side[y->rank - axes + i];
        p.kernel[a] = (size_t)op->l[0].at[i];
        if (op->row->code != 26) {
            p.stride[a] = (size_t)op->l[1].at[i], p.padding[a] = (size_t)op->l[2].at[i];
            p.dilation[a] = dilated ? (size_t)op->l[3].at[i] : 1;
        }
    }
    p.planes /= p.side[0] * p.side[1];
    return p;
}

/* The largest that is there, places of padding apart. */
void mean_max_pool(run *r, const operation *op)
{
    pool p = pool_of(r, op);
    size_t lanes = r->lanes;
    const float *x = mean_of(r, op->x[0]);
    float *y = mean_of(r, op->result);
    for (size_t c = 0; c < p.planes; c++, x += p.side[0] * p.side[1] * lanes)
        for (size_t i = 0; i < p.out[0]; i++)
            for (size_t j = 0; j < p.out[1]; j++, y += lanes) {
                for (size_t l = 0; l < lanes; l++)
                    y[l] = -3.40282347e38f;
                for (size_t a = 0; a < p.kernel[0]; a++)
                    for (size_t b = 0; b < p.kernel[1]; b++) {
                        size_t row = i * p.stride[0] + a * p.dilation[0] - p.padding[0];
                        size_t column = j * p.stride[1] + b * p.dilation[1] - p.padding[1];
                        if (row >= p.side[0] || column >= p.side[1])
                            continue;
                        const float *seen = x + (row * p.side[1] + column) * lanes;
                        for (size_t l = 0; l < lanes; l++)
                            y[l] = y[l] > seen[l] || y[l] != y[l] ? y[l] : seen[l];
                    }
            }
}

static unsigned last_axes(const run *r, const operation *op, int axes)
{
    return ((1u << axes) - 1) << (slot_of(r, op->x[0])->shape.rank - axes);
}

/* Half against half of a window, SIDE windows side by side; the last waits if there is one too many. */
enum { SIDE = ROWS };
static void tournament(float *restrict m, float *restrict s, size_t n)
{
    for (size_t left = n; left > 1; left = (left + 1) / 2) {
        size_t half = left / 2 * SIDE;
        for (size_t i = 0; i < half; i++) {
            float mean, variance;
            larger_moments(m[i], s[i], m[i + half], s[i + half], &mean, &variance);
            m[i] = mean, s[i] = variance;
        }
        if (left % 2) {
            memcpy(m + half, m + (left - 1) * SIDE, SIDE * sizeof *m);
            memcpy(s + half, s + (left - 1) * SIDE, SIDE * sizeof *s);
        }
    }
}

/* The numbers of window c, padding far below; where noise is common the winner of the means comes first. */
static void gather(const pool *p, const float *x, const float *v, size_t c, size_t lanes, int common, float *m, float *s)
{
    size_t l = c % lanes, j = c / lanes % p->out[1], i = c / lanes / p->out[1] % p->out[0];
    size_t plane = c / lanes / p->out[1] / p->out[0] * p->side[0] * p->side[1];
    for (size_t k = 0; k < p->kernel[0] * p->kernel[1]; k++) {
        size_t row = i * p->stride[0] + k / p->kernel[1] * p->dilation[0] - p->padding[0];
        size_t column = j * p->stride[1] + k % p->kernel[1] * p->dilation[1] - p->padding[1];
        int inside = row < p->side[0] && column < p->side[1];
        float mean = inside ? x[(plane + row * p->side[1] + column) * lanes + l] : -1e15f;
        float variance = inside ? v[(plane + row * p->side[1] + column) * lanes + l] : 0;
        if (!common || k == 0 || (!(mean <= m[0]) && m[0] == m[0])) {
            size_t to = common ? 0 : k * SIDE;
            m[to] = mean, s[to] = variance;
        }
    }
}

void moments_max_pool(run *r, const operation *op)
{
    pool p = pool_of(r, op);
    size_t n = p.kernel[0] * p.kernel[1], total = count_at(r, op->result);
    unsigned last = last_axes(r, op, op->l[0].count);
    int common = (slot_of(r, op->x[0])->common & last) == last;
    const float *x = mean_of(r, op->x[0]), *v = variance_of(r, op->x[0]);
    float *y = mean_of(r, op->result), *yv = variance_of(r, op->result), *m = own_of(r), *s = m + n * SIDE;
    for (size_t c = 0; c < total; c += SIDE) {
        size_t count = total - c < SIDE ? total - c : SIDE;
        for (size_t t = 0; t < count; t++)
            gather(&p, x, v, c + t, r->lanes, common, m + t, s + t);
        if (!common)
            tournament(m, s, n);
        memcpy(y + c, m, count * sizeof *y);
        memcpy(yv + c, s, count * sizeof *yv);
    }
}

/* Where window i of an axis begins and ends, inside and with counted padding. */
static void bounds(const pool *p, const operation *op, int a, size_t i, size_t *begin, size_t *end, size_t *room)
{
    if (op->row->code == 26) {
        *begin = i * p->side[a] / p->out[a];
        *end = ((i + 1) * p->side[a] + p->out[a] - 1) / p->out[a];
        *room = *end - *begin;
        return;
    }
    size_t first = i * p->stride[a], last = first + p->kernel[a], most = p->side[a] + p->padding[a];
    *room = (last < most + p->padding[a] ? last : most + p->padding[a]) - first;
    *begin = first > p->padding[a] ? first - p->padding[a] : 0;
    *end = (last < most ? last : most);
    *end = *end > p->padding[a] ? *end - p->padding[a] : 0;
}

/* Sums over windows divided by their size. Of variances: where noise is common the square of a mean of
   stds; else a mean times the weight of one number, 1 / kernel, 1 / inside, as the layer divides. */
static void averages(run *r, const operation *op, const float *x, float *y, int of_variance)
{
    pool p = pool_of(r, op);
    unsigned last = last_axes(r, op, op->l[0].count);
    int common = of_variance && (slot_of(r, op->x[0])->common & last) == last, counted = op->row->code == 26 || p.counted;
    size_t lanes = r->lanes, kernel = p.kernel[0] * p.kernel[1];
    for (size_t c = 0; c < p.planes * p.out[0] * p.out[1]; c++, y += lanes) {
        size_t begin[2], end[2], room[2], j = c % p.out[1], i = c / p.out[1] % p.out[0];
        const float *plane = x + c / p.out[1] / p.out[0] * p.side[0] * p.side[1] * lanes;
        bounds(&p, op, 0, i, &begin[0], &end[0], &room[0]);
        bounds(&p, op, 1, j, &begin[1], &end[1], &room[1]);
        float all = (float)(room[0] * room[1]), inside = (float)((end[0] - begin[0]) * (end[1] - begin[1]));
        float share = 1 / (counted ? all : inside), more = 1;
        if (of_variance && !common)
            more = op->row->code == 26 ? share : counted ? 1 / (float)kernel : all / ((float)kernel * inside);
        for (size_t l = 0; l < lanes; l++)
            y[l] = 0;
        for (size_t a = begin[0]; a < end[0]; a++)
            for (size_t b = begin[1] * lanes; b < end[1] * lanes; b += lanes)
                for (size_t l = 0; l < lanes; l++) {
                    float seen = plane[a * p.side[1] * lanes + b + l];
                    y[l] += common ? sqrtf(seen) : seen;
                }
        for (size_t l = 0; l < lanes; l++)
            y[l] = common ? y[l] * share * y[l] * share : y[l] * share * more;
    }
}

void mean_avg_pool(run *r, const operation *op) { averages(r, op, mean_of(r, op->x[0]), mean_of(r, op->result), 0); }
void mean_adaptive(run *r, const operation *op) { mean_avg_pool(r, op); }

void moments_avg_pool(run *r, const operation *op)
{
    mean_avg_pool(r, op);
    averages(r, op, variance_of(r, op->x[0]), variance_of(r, op->result), 1);
}

void moments_adaptive(run *r, const operation *op) { moments_avg_pool(r, op); }
