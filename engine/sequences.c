/* engine/sequences.c: products of matrices, attention, recurrences. */
#include "inside.h"
#include "scalars.h"

/* c (+)= scale a b of (L, E) and (E, S) for each lane; roots and squares of what is read, as asked. */
typedef struct factor { const float *x; int how; } factor;   /* how: as it is, squared, its root */
enum { PLAIN, SQUARED, ROOT };

static inline float taken(const factor *f, size_t i)
{
    float x = f->x[i];
    return f->how == PLAIN ? x : f->how == SQUARED ? x * x : sqrtf(x);
}

static void matrix_product(factor a, factor b, float *c, size_t rows, size_t inner, size_t columns, size_t lanes, int square, int add)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns * lanes; j += 64) {
            float sum[64] = {0};
            size_t n = columns * lanes - j < 64 ? columns * lanes - j : 64;
            for (size_t k = 0; k < inner; k++) {
                const float *x = b.x + k * columns * lanes + j;
                float factor = taken(&a, (i * inner + k) * lanes);
                if (lanes == 1 && b.how == PLAIN)
                    for (size_t t = 0; t < n; t++)
                        sum[t] += factor * x[t];
                else
                    for (size_t t = 0; t < n; t++)
                        sum[t] += taken(&a, (i * inner + k) * lanes + t % lanes) * taken(&b, (size_t)(x - b.x) + t);
            }
            float *to = c + i * columns * lanes + j;
            for (size_t t = 0; t < n; t++)
                to[t] = (square ? sum[t] * sum[t] : sum[t]) + (add ? to[t] : 0);
        }
}

/* The k-th matrix of an operand that broadcasts in front of its last two axes. */
static size_t matrix_at(const shape *s, const shape *y, size_t k, size_t lanes)
{
    size_t step = (size_t)(s->side[s->rank - 1] * s->side[s->rank - 2]) * lanes, found = 0;
    for (int i = 3; i <= y->rank; i++) {
        size_t side = i <= s->rank ? (size_t)s->side[s->rank - i] : 1, index = k % (size_t)y->side[y->rank - i];
        k /= (size_t)y->side[y->rank - i];
        found += side == 1 ? 0 : index * step;
        step *= side;
    }
    return found;
}

/* Variance = noise of a times means of b + means of a times noise of b + noise times noise; where noise
   is common along what is summed over, stds add with signs. */
static void matmul(run *r, const operation *op, int with_variance)
{
    const slot *sa = slot_of(r, op->x[0]), *sb = slot_of(r, op->x[1]), *out = slot_of(r, op->result);
    const shape *s = &out->shape;
    size_t rows = (size_t)s->side[s->rank - 2], columns = (size_t)s->side[s->rank - 1], lanes = r->lanes;
    size_t inner = (size_t)sa->shape.side[sa->shape.rank - 1];
    int common_a = (int)(sa->common >> (sa->shape.rank - 1) & 1), common_b = (int)(sb->common >> (sb->shape.rank - 2) & 1);
    for (size_t k = 0; k < out->size / (rows * columns); k++) {
        size_t ia = matrix_at(&sa->shape, s, k, lanes), ib = matrix_at(&sb->shape, s, k, lanes), io = k * rows * columns * lanes;
        const float *m = mean_of(r, op->x[0]) + ia, *n = mean_of(r, op->x[1]) + ib;
        const float *v = with_variance ? variance_of(r, op->x[0]) : NULL, *w = with_variance ? variance_of(r, op->x[1]) : NULL;
        float *yv = with_variance ? variance_of(r, op->result) + io : NULL;
        matrix_product((factor){m, PLAIN}, (factor){n, PLAIN}, mean_of(r, op->result) + io, rows, inner, columns, lanes, 0, 0);
        if (v)
            matrix_product((factor){v + ia, common_a ? ROOT : PLAIN}, (factor){n, common_a ? PLAIN : SQUARED}, yv, rows, inner,
                           columns, lanes, common_a, 0);
        if (w)
            matrix_product((factor){m, common_b ? PLAIN : SQUARED}, (factor){w + ib, common_b ? ROOT : PLAIN}, yv, rows, inner,
                           columns, lanes, common_b, v != NULL);
        if (v && w)
            matrix_product((factor){v + ia, PLAIN}, (factor){w + ib, PLAIN}, yv, rows, inner, columns, lanes, 0, 1);
    }
}

void mean_matmul(run *r, const operation *op) { matmul(r, op, 0); }
void moments_matmul(run *r, const operation *op) { matmul(r, op, 1); }

/* Where a mask's number for row i and column j of matrix k lies. */
static size_t mask_at(const shape *s, const shape *scores, size_t k, size_t i, size_t j)
{
    size_t index[2] = {j, i}, step = 1, found = 0;
    for (int a = 1; a <= scores->rank && a <= s->rank; a++) {
        size_t side = (size_t)s->side[s->rank - a], at = a <= 2 ? index[a - 1] : k % (size_t)scores->side[scores->rank - a];
        if (a > 2)
            k /= (size_t)scores->side[scores->rank - a];
        found += side == 1 ? 0 : at * step;
        step *= side;
    }
    return found;
}

/* softmax(scale q k^T + mask) of one row, into `weights` with R numbers each. */
static void attend(run *r, const operation *op, const float *q, const float *k, size_t head, size_t i, size_t keys, size_t wide,
                   float *weights)
{
    size_t lanes = r->lanes;
    const float *mask = op->x[3] == ABSENT ? NULL : mean_of(r, op->x[3]);
    shape scores = slot_of(r, op->x[0])->shape;
    scores.side[scores.rank - 1] = (int64_t)keys;
    for (size_t l = 0; l < lanes; l++) {
        float most = -INFINITY, sum = 0;
        for (size_t j = 0; j < keys; j++) {
            float dot = 0;
            for (size_t e = 0; e < wide; e++)
                dot += q[(i * wide + e) * lanes + l] * k[(j * wide + e) * lanes + l];
            dot *= op->r[0];
            if (mask)
                dot += mask[mask_at(&slot_of(r, op->x[3])->shape, &scores, head, i, j) * lanes + l];
            if (op->n[0] && j > i)
                dot = -INFINITY;
            weights[j * lanes + l] = dot;
            most = dot > most ? dot : most;
        }
        for (size_t j = 0; j < keys; j++)
            sum += weights[j * lanes + l] = exponential(weights[j * lanes + l] - most);
        for (size_t j = 0; j < keys; j++)
            weights[j * lanes + l] /= sum;
    }
}

/* Weights are those of the means; values are random. */
static void attention(run *r, const operation *op, int with_variance)
{
    const slot *q = slot_of(r, op->x[0]), *v = slot_of(r, op->x[2]);
    int rank = q->shape.rank, common = (int)(v->common >> (rank - 2) & 1);
    size_t rows = (size_t)q->shape.side[rank - 2], wide = (size_t)q->shape.side[rank - 1], keys = (size_t)v->shape.side[rank - 2];
    size_t values = (size_t)v->shape.side[rank - 1], lanes = r->lanes;
    for (size_t h = 0; h < q->size / (rows * wide); h++) {
        const float *at = mean_of(r, op->x[0]) + h * rows * wide * lanes, *k = mean_of(r, op->x[1]) + h * keys * wide * lanes;
        float *weights = own_of(r), *y = mean_of(r, op->result) + h * rows * values * lanes;
        size_t from = h * keys * values * lanes;
        for (size_t i = 0; i < rows; i++)
            attend(r, op, at, k, h, i, keys, wide, weights + i * keys * lanes);
        matrix_product((factor){weights, PLAIN}, (factor){mean_of(r, op->x[2]) + from, PLAIN}, y, rows, keys, values, lanes, 0, 0);
        if (with_variance)
            matrix_product((factor){weights, common ? PLAIN : SQUARED},
                           (factor){variance_of(r, op->x[2]) + from, common ? ROOT : PLAIN},
                           variance_of(r, op->result) + h * rows * values * lanes, rows, keys, values, lanes, common, 0);
    }
}

void mean_attention(run *r, const operation *op) { attention(r, op, 0); }
void moments_attention(run *r, const operation *op) { attention(r, op, 1); }

/* Means, and variances where they are wanted, of some numbers. */
typedef struct state { float *m, *v; } state;

static state part(state s, size_t begin) { return (state){s.m + begin, s.v ? s.v + begin : NULL}; }

static void bent(state s, size_t n, int code)
{
    if (s.v)
        quadrature(function_of(code), 16, s.m, s.v, s.m, s.v, n, 0, 0);
    else
        function_of(code)(s.m, s.m, n, 0, 0);
}

/* a b: variance (m^2 + v) w + n^2 v. */
static void times(state a, state b, state to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float m = a.m[i], k = b.m[i];
        if (to.v)
            to.v[i] = (m * m + a.v[i]) * b.v[i] + k * k * a.v[i];
        to.m[i] = m * k;
    }
}

static void plus(state a, state to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        to.m[i] += a.m[i];
        if (to.v)
            to.v[i] += a.v[i];
    }
}

static void take_over(state from, state to, size_t n)
{
    memcpy(to.m, from.m, n * sizeof *to.m);
    if (to.v)
        memcpy(to.v, from.v, n * sizeof *to.v);
}

/* i, f, o = sigmoid, g = tanh of W x + U h; c' = f c + i g, h' = o tanh(c'). */
static void lstm_step(state gates, state hidden, state memory, state h, size_t n)
{
    plus(hidden, gates, 4 * n);
    bent(gates, 2 * n, 45);
    bent(part(gates, 2 * n), n, 44);
    bent(part(gates, 3 * n), n, 45);
    times(gates, part(gates, 2 * n), gates, n);
    times(part(gates, n), memory, memory, n);
    plus(gates, memory, n);
    take_over(memory, h, n);
    bent(h, n, 44);
    times(part(gates, 3 * n), h, h, n);
}

/* r, z = sigmoid of W x + U h; n = tanh(W x + r U h); h' = n + z (h - n), whose variance is
   (1 - z)^2 Var n + z^2 Var h + Var z ((n - h)^2 + Var n + Var h). */
static void gru_step(state gates, state hidden, state h, size_t n)
{
    plus(hidden, gates, 2 * n);
    bent(gates, 2 * n, 45);
    times(gates, part(hidden, 2 * n), gates, n);
    plus(gates, part(gates, 2 * n), n);
    bent(part(gates, 2 * n), n, 44);
    state z = part(gates, n), fresh = part(gates, 2 * n);
    for (size_t i = 0; i < n; i++) {
        float t = z.m[i], apart = h.m[i] - fresh.m[i];
        if (h.v)
            h.v[i] = (1 - t) * (1 - t) * fresh.v[i] + t * t * h.v[i] + z.v[i] * (apart * apart + fresh.v[i] + h.v[i]);
        h.m[i] = fresh.m[i] + t * apart;
    }
}

/* All inputs are projected at once; the steps follow each other. */
static void recurrent(run *r, const operation *op, int with_variance, int gates)
{
    const slot *out = slot_of(r, op->result);
    const kernel *k = &r->member->kernels[op->first_kernel];
    size_t steps = (size_t)out->shape.side[0], n = (size_t)out->shape.side[1] * r->lanes, wide = (size_t)gates * n;
    float *own = own_of(r);
    state input = {own, with_variance ? own + (steps + 8) * wide : NULL};
    state hidden = part(input, steps * wide), memory = part(hidden, wide), h = part(memory, n);
    apply_rows(r, k, steps, mean_of(r, op->x[0]), with_variance ? variance_of(r, op->x[0]) : NULL, input.m, input.v);
    memset(memory.m, 0, 2 * n * sizeof(float));
    if (with_variance)
        memset(memory.v, 0, 2 * n * sizeof(float));
    state result = {mean_of(r, op->result), with_variance ? variance_of(r, op->result) : NULL};
    for (size_t i = 0; i < steps; i++) {
        size_t t = op->n[0] ? steps - 1 - i : i;
        apply_rows(r, k + 1, 1, h.m, h.v, hidden.m, hidden.v);
        if (gates == 4)
            lstm_step(part(input, t * wide), hidden, memory, h, n);
        else
            gru_step(part(input, t * wide), hidden, h, n);
        take_over(h, part(result, t * n), n);
    }
}

void mean_lstm(run *r, const operation *op) { recurrent(r, op, 0, 4); }
void moments_lstm(run *r, const operation *op) { recurrent(r, op, 1, 4); }
void mean_gru(run *r, const operation *op) { recurrent(r, op, 0, 3); }
void moments_gru(run *r, const operation *op) { recurrent(r, op, 1, 3); }
