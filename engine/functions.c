/* engine/functions.c: what goes number by number: one formula an operation, and moments of it. */
#include "inside.h"
#include "scalars.h"

#define EACH(name, value) \
    static void each_##name(const float *x, float *y, size_t n, float a, float b) \
    { \
        (void)a, (void)b; \
        for (size_t i = 0; i < n; i++) { float t = x[i]; y[i] = (value); } \
    }
EACH(relu, t > 0 ? t : t != t ? t : 0)
EACH(gelu, t * normal_cdf(t))
EACH(gelu_tanh, 0.5f * t * (1 + hyperbolic_tangent(0.797884561f * (t + 0.044715f * t * t * t))))
EACH(silu, t * sigmoid(t))
EACH(tanh, hyperbolic_tangent(t))
EACH(sigmoid, sigmoid(t))
EACH(softplus, (t > 0 ? t : 0) + log1pf(exponential(-fabsf(t))))
EACH(exp, exponential(t))
EACH(log, logf(t))
EACH(sqrt, sqrtf(t))
EACH(abs, fabsf(t))
EACH(hardsigmoid, (t + 3 < 0 ? 0 : t + 3 > 6 ? 6 : t + 3) / 6)
EACH(hardswish, t * (t + 3 < 0 ? 0 : t + 3 > 6 ? 6 : t + 3) / 6)
EACH(leaky, t > 0 ? t : a * t)
EACH(elu, t > 0 ? t : a * expm1f(t))
EACH(clamp, (t < a ? a : t) > b ? b : t < a ? a : t)
EACH(affine, a * t + b)

each function_of(int code)
{
    static const each by_code[] = {each_relu, each_gelu, each_gelu_tanh, each_silu, each_tanh, each_sigmoid, each_softplus,
        each_exp, each_log, each_sqrt, each_abs, each_hardswish, each_hardsigmoid, each_leaky, each_elu, each_clamp};
    return code == 17 ? each_affine : by_code[code - 40];
}

void mean_unary(run *r, const operation *op)
{
    function_of(op->row->code)(mean_of(r, op->x[0]), mean_of(r, op->result), count_at(r, op->result), op->r[0], op->r[1]);
}

/* Points and weights of Gauss and Hermite, their larger half: nodes of 16 and of 64. */
static const float POINTS[] = {
    0.386760605f, 1.1638291f, 1.95198035f, 2.76024505f, 3.60087362f, 4.4929553f, 5.47222571f, 6.6308782f,
    0.195588911f, 0.586882823f, 0.978525909f, 1.37075396f, 1.76380738f, 2.15793312f, 2.55338687f, 2.9504354f,
    3.34935918f, 3.75045539f, 4.15404137f, 4.56045873f, 4.97007811f, 5.38330506f, 5.8005871f, 6.22242253f,
    6.64937146f, 7.08206983f, 7.52124766f, 7.96775298f, 8.42258409f, 8.88693391f, 9.36225255f, 9.85033846f,
    10.3534759f, 10.874652f, 11.4179181f, 11.9890366f, 12.5967525f, 13.2556494f, 13.9940499f, 14.8861861f,
};
static const float SHARES[] = {
    0.286568521f, 0.158338373f, 0.0472847524f, 0.0072669376f, 0.000525984927f, 1.53000322e-05f, 1.30947322e-07f, 1.49781472e-10f,
    0.153108316f, 0.131453231f, 0.0968633639f, 0.0612136385f, 0.033140486f, 0.015347722f, 0.00606844602f, 0.00204382584f,
    0.000584686083f, 0.000141602388f, 2.89199582e-05f, 4.95837972e-06f, 7.09942462e-07f, 8.43764105e-08f, 8.26608442e-09f, 6.62142341e-10f,
    4.29642625e-11f, 2.23372686e-12f, 9.18692879e-14f, 2.94429315e-15f, 7.22215357e-17f, 1.32690886e-18f, 1.77846919e-20f, 1.68290011e-22f,
    1.07856511e-24f, 4.43554442e-27f, 1.08838015e-29f, 1.43849212e-32f, 8.78663568e-36f, 0, 0, 0,
};

/* sum_i w_i f(m + s x_i), of f - f(m), so that narrow Gaussians lose no digits. */
void quadrature(each f, int nodes, const float *m, const float *v, float *y, float *yv, size_t n, float a, float b)
{
    enum { BLOCK = 64 };
    const float *point = nodes == 16 ? POINTS : POINTS + 8, *share = nodes == 16 ? SHARES : SHARES + 8;
    float std[BLOCK], at[BLOCK], value[BLOCK], centre[BLOCK], first[BLOCK], second[BLOCK];
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t count = n - i < BLOCK ? n - i : BLOCK;
        for (size_t j = 0; j < count; j++)
            std[j] = sqrtf(v[i + j]), first[j] = second[j] = 0;
        f(m + i, centre, count, a, b);
        for (int k = 0; k < nodes; k++) {
            float x = k % 2 ? -point[k / 2] : point[k / 2], w = share[k / 2];
            for (size_t j = 0; j < count; j++)
                at[j] = m[i + j] + std[j] * x;
            f(at, value, count, a, b);
            for (size_t j = 0; j < count; j++) {
                float apart = value[j] - centre[j];
                first[j] += w * apart;
                second[j] += w * apart * apart;
            }
        }
        for (size_t j = 0; j < count; j++) {
            float spread = second[j] - first[j] * first[j];
            y[i + j] = centre[j] + first[j];
            yv[i + j] = spread < 0 ? 0 : spread;
        }
    }
}

/* c x + (1 - c) max(x, 0): Cov(x, max(x, 0)) = v P(x > 0). */
static void leaky(const float *restrict m, const float *restrict v, float *restrict y, float *restrict yv, size_t n, float c)
{
    for (size_t i = 0; i < n; i++) {
        float half, spread, above, rest = 1 - c;
        half_moments(m[i], v[i], &half, &spread, &above);
        float total = c * c * v[i] + rest * rest * spread + 2 * c * rest * v[i] * above;
        y[i] = c * m[i] + rest * half;
        yv[i] = total < 0 ? 0 : total;
    }
}

static void rectified(const float *restrict m, const float *restrict v, float *restrict y, float *restrict yv, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float above;
        half_moments(m[i], v[i], &y[i], &yv[i], &above);
    }
}

/* min(max(x, low), high): with z = x - m cut to [a, b], E z = a P(z < a) + b P(z > b) + E between. */
static void clipped(const float *m, const float *v, float *y, float *yv, size_t n, float low, float high)
{
    for (size_t i = 0; i < n; i++) {
        float std = sqrtf(v[i] < TINY ? TINY : v[i]), a = low - m[i], b = high - m[i];
        a = a < -40 * std ? -40 * std : a, b = b > 40 * std ? 40 * std : b;
        float below = 0.5f * erfcf(-a / std * 0.70710678f), under = 0.5f * erfcf(-b / std * 0.70710678f);
        float beyond = 0.5f * erfcf(b / std * 0.70710678f);
        float left = std * 0.39894228f * expf(-0.5f * (a / std) * (a / std));
        float right = std * 0.39894228f * expf(-0.5f * (b / std) * (b / std));
        float first = a * below + b * beyond + left - right;
        float second = a * a * below + b * b * beyond + v[i] * (under - below) + a * left - b * right;
        float spread = second - first * first;
        y[i] = m[i] + first;
        yv[i] = spread < 0 ? 0 : spread;
    }
}

/* f(m) and f'(m)^2 v: of log 1 / m, of sqrt 1 / (2 sqrt m). */
static void first_order(int code, const float *m, const float *v, float *y, float *yv, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float slope = code == 48 ? 1 / m[i] : 0.5f / sqrtf(m[i]);
        y[i] = code == 48 ? logf(m[i]) : sqrtf(m[i]);
        yv[i] = slope * slope * v[i];
    }
}

void moments_unary(run *r, const operation *op)
{
    int code = op->row->code;
    size_t n = count_at(r, op->result);
    const float *m = mean_of(r, op->x[0]), *v = variance_of(r, op->x[0]);
    float *y = mean_of(r, op->result), *yv = variance_of(r, op->result), a = op->r[0], b = op->r[1];
    switch (code) {
    case 17:
        mean_unary(r, op);
        for (size_t i = 0; i < n; i++)
            yv[i] = a * a * v[i];
        break;
    case 40: rectified(m, v, y, yv, n); break;
    case 47:                             /* the log-normal's: exp(m + v / 2), and that squared times exp(v) - 1 */
        for (size_t i = 0; i < n; i++) {
            y[i] = exponential(m[i] + v[i] / 2);
            yv[i] = y[i] * y[i] * expm1f(v[i]);
        }
        break;
    case 48: case 49: first_order(code, m, v, y, yv, n); break;
    case 50: leaky(m, v, y, yv, n, -1); break;
    case 51: quadrature(function_of(code), 64, m, v, y, yv, n, a, b); break;
    case 52:
        clipped(m, v, y, yv, n, -3, 3);
        for (size_t i = 0; i < n; i++)
            y[i] = y[i] / 6 + 0.5f, yv[i] /= 36;
        break;
    case 53: leaky(m, v, y, yv, n, a); break;
    case 55: clipped(m, v, y, yv, n, a, b); break;
    default: quadrature(function_of(code), 16, m, v, y, yv, n, a, b);
    }
}

/* A slope for all, or one for each channel. */
static void prelu(run *r, const operation *op, int with_variance)
{
    const float *slope = weight_of(r, op->x[1], r->drawn ? DRAWN : MEAN);
    const shape *s = &slot_of(r, op->result)->shape;
    size_t channels = s->rank ? (size_t)s->side[0] : 1, each = count_at(r, op->result) / channels;
    const pocket_weight *w = &r->model->file->weights[r->member->first + (uint32_t)(-1 - op->x[1])];
    const float *m = mean_of(r, op->x[0]), *v = variance_of(r, op->x[0]);
    float *y = mean_of(r, op->result), *yv = variance_of(r, op->result);
    for (size_t c = 0; c < channels; c++) {
        float a = slope[w->size > 1 ? c : 0];
        if (with_variance)
            leaky(m + c * each, v + c * each, y + c * each, yv + c * each, each, a);
        else
            each_leaky(m + c * each, y + c * each, each, a, 0);
    }
}

void mean_prelu(run *r, const operation *op) { prelu(r, op, 0); }
void moments_prelu(run *r, const operation *op) { prelu(r, op, 1); }

void mean_dropout(run *r, const operation *op)
{
    const float *x = mean_of(r, op->x[0]);
    float *y = mean_of(r, op->result);
    if (r->drawn && r->model->facts.keeps_dropout)
        drop(r, op, x, y);
    else
        memcpy(y, x, count_at(r, op->result) * sizeof *y);
}

/* x b / (1 - p): mean m, variance (v + p m^2) / (1 - p). */
void moments_dropout(run *r, const operation *op)
{
    const float *m = mean_of(r, op->x[0]), *v = variance_of(r, op->x[0]);
    float *y = mean_of(r, op->result), *yv = variance_of(r, op->result), p = r->model->facts.keeps_dropout ? op->r[0] : 0;
    for (size_t i = 0; i < count_at(r, op->result); i++) {
        y[i] = m[i];
        yv[i] = ((v ? v[i] : 0) + p * m[i] * m[i]) / (1 - p);
    }
}
