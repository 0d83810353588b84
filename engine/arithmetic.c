/* engine/arithmetic.c: sums, products and the larger of two, that broadcast; sums over axes. */
#include "inside.h"
#include "scalars.h"
#include <float.h>

#define INLINE static inline __attribute__((always_inline))
enum { ADD = 11, SUBTRACT, MULTIPLY, DIVIDE, LARGER, SMALLER };

/* NaN, where one is. */
static inline float larger(float a, float b) { return a > b || a != a ? a : b; }
static inline float smaller(float a, float b) { return a < b || a != a ? a : b; }

INLINE void pair_run(int code, const float *a, size_t sa, const float *b, size_t sb, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float s = a[i * sa], t = b[i * sb];
        y[i] = code == ADD ? s + t : code == SUBTRACT ? s - t : code == MULTIPLY ? s * t : code == DIVIDE ? s / t
             : code == LARGER ? larger(s, t) : smaller(s, t);
    }
}

static void pair_of(int code, const float *a, size_t sa, const float *b, size_t sb, float *y, size_t n)
{
#define CASE(code) case code: \
        if (sa && sb) pair_run(code, a, 1, b, 1, y, n); \
        else if (sa) pair_run(code, a, 1, b, 0, y, n); \
        else pair_run(code, a, 0, b, sb, y, n); \
        break
    switch (code) {
        CASE(ADD); CASE(SUBTRACT); CASE(MULTIPLY); CASE(DIVIDE); CASE(LARGER); CASE(SMALLER);
    }
#undef CASE
}

/* Moments of what two independent numbers give. Sums: v + w; products: v w + m^2 w + n^2 v; 1 / n to first
   order: 1 / n and w / n^4; maxima as Clark has them. */
static void pair_moments(int code, float m, float v, float n, float w, float *y, float *yv)
{
    switch (code) {
    case ADD: *y = m + n, *yv = v + w; break;
    case SUBTRACT: *y = m - n, *yv = v + w; break;
    case DIVIDE:
        n = 1 / n;
        w *= n * n * n * n; /* fall through */
    case MULTIPLY: *y = m * n, *yv = (m * m + v) * w + n * n * v; break;
    case LARGER: larger_moments(m, v, n, w, y, yv); break;
    default: larger_moments(-m, v, -n, w, y, yv), *y = -*y;
    }
}

/* Of one and the same: 2 x, 0, x^2 (mean m^2 + v, variance 2 v^2 + 4 m^2 v). */
static void own_moments(int code, float m, float v, float *y, float *yv)
{
    if (code == MULTIPLY)
        *y = m * m + v, *yv = 2 * v * (v + 2 * m * m);
    else if (code == ADD || code == SUBTRACT)
        *y = code == ADD ? 2 * m : 0, *yv = code == ADD ? 4 * v : 0;
    else
        pair_moments(code, m, v, m, v, y, yv);
}

static void walk_of(const run *r, const operation *op, walk *w)
{
    const shape *y = &slot_of(r, op->result)->shape;
    *w = (walk){.rank = y->rank + 1};
    w->side[y->rank] = r->lanes;
    w->step[0][y->rank] = w->step[1][y->rank] = w->step[2][y->rank] = 1;
    for (int k = 0; k < 3; k++) {
        const shape *s = k ? &slot_of(r, op->x[k - 1])->shape : y;
        size_t step = r->lanes;
        for (int i = 1; i <= y->rank; i++) {
            size_t side = i <= s->rank ? (size_t)s->side[s->rank - i] : 1;
            w->side[y->rank - i] = (size_t)y->side[y->rank - i];
            w->step[k][y->rank - i] = side == 1 ? 0 : step;
            step *= side;
        }
    }
    walk_begin(w);
}

void mean_pair(run *r, const operation *op)
{
    walk w;
    walk_of(r, op, &w);
    const float *a = mean_of(r, op->x[0]), *b = mean_of(r, op->x[1]);
    float *y = mean_of(r, op->result);
    int last = w.rank - 1;
    do
        pair_of(op->row->code, a + w.at[1], last < 0 ? 1 : w.step[1][last], b + w.at[2], last < 0 ? 1 : w.step[2][last],
                y + w.at[0], w.run);
    while (walk_next(&w));
}

void moments_pair(run *r, const operation *op)
{
    walk w;
    walk_of(r, op, &w);
    int code = op->row->code, last = w.rank - 1, same = op->x[0] == op->x[1];
    size_t sa = last < 0 ? 1 : w.step[1][last], sb = last < 0 ? 1 : w.step[2][last];
    const float *m = mean_of(r, op->x[0]), *v = variance_of(r, op->x[0]), *n = mean_of(r, op->x[1]), *u = variance_of(r, op->x[1]);
    float *y = mean_of(r, op->result), *yv = variance_of(r, op->result);
    if (code <= SUBTRACT && !same && v && u) {   /* residual sums */
        mean_pair(r, op);
        do
            pair_of(ADD, v + w.at[1], sa, u + w.at[2], sb, yv + w.at[0], w.run);
        while (walk_next(&w));
        return;
    }
    do
        for (size_t i = 0; i < w.run; i++) {
            size_t p = w.at[1] + i * sa, q = w.at[2] + i * sb, o = w.at[0] + i;
            if (same)
                own_moments(code, m[p], v[p], &y[o], &yv[o]);
            else
                pair_moments(code, m[p], v ? v[p] : 0, n[q], u ? u[q] : 0, &y[o], &yv[o]);
        }
    while (walk_next(&w));
}

static int is_among(const operation *op, int axis)
{
    for (int i = 0; i < op->l[0].count; i++)
        if (op->l[0].at[i] == axis)
            return 1;
    return 0;
}

/* y (+)= x, or its root, or the larger of both, over the axes of a mask, which stay with size 1. */
static void fold(const run *r, const shape *s, unsigned axes, int how, const float *x, float *y)
{
    walk w = {.rank = s->rank + 1};
    size_t step = r->lanes, to = r->lanes, sides[MOST_AXES], total = r->lanes;
    w.side[s->rank] = r->lanes;
    w.step[0][s->rank] = w.step[1][s->rank] = 1;
    for (int i = s->rank - 1; i >= 0; i--) {
        sides[i] = axes >> i & 1 ? 1 : (size_t)s->side[i];
        w.side[i] = (size_t)s->side[i];
        w.step[0][i] = axes >> i & 1 ? 0 : to;
        w.step[1][i] = step;
        step *= (size_t)s->side[i];
        to *= sides[i];
        total *= sides[i];
    }
    for (size_t i = 0; i < total; i++)
        y[i] = how == LARGER ? -INFINITY : 0;
    walk_begin(&w);
    size_t a = w.rank ? w.step[0][w.rank - 1] : 1, b = w.rank ? w.step[1][w.rank - 1] : 1;
    do {
        float *into = y + w.at[0];
        const float *from = x + w.at[1];
        double sum = 0;
        if (how == LARGER)
            for (size_t i = 0; i < w.run; i++)
                into[i * a] = larger(into[i * a], from[i * b]);
        else if (a)
            for (size_t i = 0; i < w.run; i++)
                into[i] += how == SQUARE ? sqrtf(from[i]) : from[i];
        else
            for (size_t i = 0; i < w.run; i++)
                sum += (double)(how == SQUARE ? sqrtf(from[i * b]) : from[i * b]);
        *into += a ? 0 : (float)sum;
    } while (walk_next(&w));
}

static unsigned axes_of(const operation *op)
{
    unsigned axes = 0;
    for (int i = 0; i < op->l[0].count; i++)
        axes |= 1u << op->l[0].at[i];
    return axes;
}

void mean_reduce(run *r, const operation *op)
{
    const slot *x = slot_of(r, op->x[0]), *out = slot_of(r, op->result);
    float *y = mean_of(r, op->result), share = (float)out->size / (float)x->size;
    fold(r, &x->shape, axes_of(op), op->row->code == 29 ? LARGER : ADD, mean_of(r, op->x[0]), y);
    for (size_t i = 0; op->row->code == 27 && i < out->size * r->lanes; i++)
        y[i] *= share;
}

/* The largest along an axis: where noise is common the winner of means, else half against half. */
static void largest_along(float *m, float *v, size_t outer, size_t n, size_t inner, int common)
{
    for (size_t o = 0; o < outer; o++)
        for (size_t i = 0; i < inner; i++) {
            float *a = m + o * n * inner + i, *b = v + o * n * inner + i;
            size_t left = n, best = 0;
            for (size_t k = 1; common && k < n; k++)
                best = a[best * inner] != a[best * inner] || a[k * inner] <= a[best * inner] ? best : k;
            a[0] = common ? a[best * inner] : a[0], b[0] = common ? b[best * inner] : b[0];
            for (; !common && left > 1; left = (left + 1) / 2) {
                size_t half = left / 2;
                for (size_t k = 0; k < half; k++)
                    larger_moments(a[k * inner], b[k * inner], a[(k + half) * inner], b[(k + half) * inner],
                                   &a[k * inner], &b[k * inner]);
                if (left % 2)
                    a[half * inner] = a[(left - 1) * inner], b[half * inner] = b[(left - 1) * inner];
            }
            m[o * inner + i] = a[0], v[o * inner + i] = b[0];
        }
}

static void largest(run *r, const operation *op)
{
    const slot *x = slot_of(r, op->x[0]), *out = slot_of(r, op->result);
    size_t n = x->size * r->lanes, inner = r->lanes, outer;
    float *m = own_of(r), *v = m + n;
    memcpy(m, mean_of(r, op->x[0]), n * sizeof *m);
    memcpy(v, variance_of(r, op->x[0]), n * sizeof *v);
    for (int axis = x->shape.rank - 1; axis >= 0; axis--) {
        size_t side = (size_t)x->shape.side[axis];
        outer = n / (side * inner);
        if (is_among(op, axis)) {
            largest_along(m, v, outer, side, inner, (int)(x->common >> axis & 1));
            n /= side;
        } else {
            inner *= side;
        }
    }
    memcpy(mean_of(r, op->result), m, out->size * r->lanes * sizeof *m);
    memcpy(variance_of(r, op->result), v, out->size * r->lanes * sizeof *v);
}

/* Variances add; where noise is common, stds do. */
void moments_reduce(run *r, const operation *op)
{
    const slot *x = slot_of(r, op->x[0]), *out = slot_of(r, op->result);
    unsigned axes = axes_of(op), common = axes & x->common;
    const float *v = variance_of(r, op->x[0]);
    float *yv = variance_of(r, op->result), share = (float)out->size / (float)x->size;
    if (op->row->code == 29) {
        largest(r, op);
        return;
    }
    mean_reduce(r, op);
    if (common) {
        shape rest = x->shape;
        size_t n = r->lanes;
        float *sums = common == axes ? yv : own_of(r);
        fold(r, &x->shape, common, SQUARE, v, sums);
        for (int i = 0; i < rest.rank; i++) {
            rest.side[i] = common >> i & 1 ? 1 : rest.side[i];
            n *= (size_t)rest.side[i];
        }
        for (size_t i = 0; i < n; i++)
            sums[i] *= sums[i];
        if (common != axes)
            fold(r, &rest, axes & ~common, ADD, sums, yv);
    } else {
        fold(r, &x->shape, axes, ADD, v, yv);
    }
    for (size_t i = 0; op->row->code == 27 && i < out->size * r->lanes; i++)
        yv[i] *= share * share;
}
