/* engine/norms.c: norms and softmax; statistics are those of a mean draw, and noise moves them, too. */
#include "inside.h"
#include "scalars.h"

/* What a norm multiplies with and adds behind it, each with a variance or none. */
typedef struct affine { const float *w, *wv, *b, *bv; } affine;

static affine affine_of(const run *r, const operation *op)
{
    int plane = r->drawn ? DRAWN : MEAN;
    affine a = {weight_of(r, op->x[1], plane), NULL, weight_of(r, op->x[2], plane), NULL};
    if (r->moments) {
        a.wv = weight_of(r, op->x[1], VARIANCE);
        a.bv = weight_of(r, op->x[2], VARIANCE);
    }
    return a;
}

/* w y + b: variance (y^2 + v) Var w + w^2 v + Var b. */
static inline void put(const affine *a, size_t k, float y, float v, float *to, float *to_variance)
{
    float w = a->w ? a->w[k] : 1, wv = a->wv ? a->wv[k] : 0;
    *to = y * w + (a->b ? a->b[k] : 0);
    if (to_variance)
        *to_variance = (y * y + v) * wv + w * w * v + (a->bv ? a->bv[k] : 0);
}

/* By stored statistics an affine map. */
static void norm(run *r, const operation *op, int with_variance)
{
    affine a = affine_of(r, op);
    const float *mean = weight_of(r, op->x[3], MEAN), *variance = weight_of(r, op->x[4], MEAN);
    const float *m = mean_of(r, op->x[0]), *v = with_variance ? variance_of(r, op->x[0]) : NULL;
    float *y = mean_of(r, op->result), *yv = with_variance ? variance_of(r, op->result) : NULL;
    size_t channels = (size_t)slot_of(r, op->result)->shape.side[0], each = count_at(r, op->result) / channels;
    for (size_t c = 0; c < channels; c++) {
        float scale = 1 / sqrtf(variance[c] + op->r[0]);
        for (size_t i = c * each; i < (c + 1) * each; i++)
            put(&a, c, (m[i] - mean[c]) * scale, v ? v[i] * scale * scale : 0, &y[i], yv ? &yv[i] : NULL);
    }
}

void mean_norm(run *r, const operation *op) { norm(r, op, 0); }
void moments_norm(run *r, const operation *op) { norm(r, op, 1); }

/* One group of n numbers, `lanes` apart, behind which weights go on every `each` numbers.
   The mean square is var(m) + (1 - 1/n) mean(v). With y = (m - centre) c, to first order
   Var y_i = c^2 (v_i (1 - 2 (1 + y_i^2) / n) + (A + 2 y_i B + y_i^2 C) / n), A, B, C the means of v, y v, y^2 v. */
static void standardise(const affine *a, const float *m, const float *v, float *y, float *yv, size_t n, size_t lanes,
                        size_t first, size_t each, float eps)
{
    double sum = 0, square = 0, noise = 0, mixed = 0, second = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)m[i * lanes], noise += v ? (double)v[i * lanes] : 0;
    float centre = (float)(sum / (double)n), share = 1 / (float)n;
    for (size_t i = 0; i < n; i++)
        square += ((double)m[i * lanes] - centre) * ((double)m[i * lanes] - centre);
    noise /= (double)n;
    float c = 1 / sqrtf((float)(square / (double)n) + (1 - share) * (float)noise + eps);
    for (size_t i = 0; v && i < n; i++) {
        double t = (double)((m[i * lanes] - centre) * c), w = (double)v[i * lanes] / (double)n;
        mixed += t * w, second += t * t * w;
    }
    for (size_t i = 0; i < n; i++) {
        float t = (m[i * lanes] - centre) * c, u = 0;
        if (v) {
            float all = (float)noise + 2 * t * (float)mixed + t * t * (float)second;
            u = (v[i * lanes] * (1 - 2 * (1 + t * t) * share) + all * share) * c * c;
        }
        put(a, (first + i) / each, t, u < 0 ? 0 : u, &y[i * lanes], yv ? &yv[i * lanes] : NULL);
    }
}

static void by_own_statistics(run *r, const operation *op, int with_variance)
{
    affine a = affine_of(r, op);
    const shape *s = &slot_of(r, op->result)->shape;
    size_t size = slot_of(r, op->result)->size, is_layer = op->row->code == 4, n, each;
    n = is_layer ? (size_t)product(s->side + s->rank - op->n[0], op->n[0]) : size / (size_t)op->n[0];
    each = is_layer ? 1 : size / (size_t)s->side[0];
    const float *m = mean_of(r, op->x[0]), *v = with_variance ? variance_of(r, op->x[0]) : NULL;
    float *y = mean_of(r, op->result), *yv = with_variance ? variance_of(r, op->result) : NULL;
    for (size_t i = 0; i < size; i += n)
        for (size_t l = 0; l < r->lanes; l++) {
            size_t at = i * r->lanes + l;
            standardise(&a, m + at, v ? v + at : NULL, y + at, yv ? yv + at : NULL, n, r->lanes, is_layer ? 0 : i, each, op->r[0]);
        }
}

void mean_layer_norm(run *r, const operation *op) { by_own_statistics(r, op, 0); }
void moments_layer_norm(run *r, const operation *op) { by_own_statistics(r, op, 1); }
void mean_group_norm(run *r, const operation *op) { by_own_statistics(r, op, 0); }
void moments_group_norm(run *r, const operation *op) { by_own_statistics(r, op, 1); }

/* p = exp(x - largest) / sum, or its log, of n numbers that lie `step` apart. */
static void softmax_of(const float *x, float *y, size_t n, size_t step, int is_log)
{
    float most = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++)
        most = x[i * step] > most ? x[i * step] : most;
    for (size_t i = 0; i < n; i++) {
        float power = exponential(x[i * step] - most);
        sum += power;
        y[i * step] = is_log ? x[i * step] - most : power;
    }
    float scale = is_log ? logf(sum) : 1 / sum;
    for (size_t i = 0; i < n; i++)
        y[i * step] = is_log ? y[i * step] - scale : y[i * step] * scale;
}

/* To first order Var log p_i = v_i (1 - 2 p_i) + sum_j p_j^2 v_j, and p_i^2 times that for p_i. */
static void softmax(run *r, const operation *op, int with_variance)
{
    const shape *s = &slot_of(r, op->result)->shape;
    size_t n = (size_t)s->side[op->n[0]], step = r->lanes, total = count_at(r, op->result);
    const float *x = mean_of(r, op->x[0]), *v = with_variance ? variance_of(r, op->x[0]) : NULL;
    float *y = mean_of(r, op->result), *yv = with_variance ? variance_of(r, op->result) : NULL;
    int is_log = op->row->code == 31;
    for (int i = op->n[0] + 1; i < s->rank; i++)
        step *= (size_t)s->side[i];
    for (size_t o = 0; o < total; o += n * step)
        for (size_t i = o; i < o + step; i++) {
            float all = 0;
            softmax_of(x + i, y + i, n, step, is_log);
            for (size_t k = 0; v && k < n; k++) {
                float p = is_log ? exponential(y[i + k * step]) : y[i + k * step];
                all += p * p * v[i + k * step];
            }
            for (size_t k = 0; v && k < n; k++) {
                float p = is_log ? exponential(y[i + k * step]) : y[i + k * step];
                float spread = (v[i + k * step] * (1 - 2 * p) + all) * (is_log ? 1 : p * p);
                yv[i + k * step] = spread < 0 ? 0 : spread;
            }
        }
}

void mean_softmax(run *r, const operation *op) { softmax(r, op, 0); }
void moments_softmax(run *r, const operation *op) { softmax(r, op, 1); }
