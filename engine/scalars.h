/* engine/scalars.h: functions of one number that a compiler can put side by side. */
#ifndef POCKET_SCALARS_H
#define POCKET_SCALARS_H
#include <math.h>
#include <stdint.h>
#include <string.h>

#define TINY 1e-30f                      /* the least variance: squares of its std are still normal numbers */

static inline float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* exp(x) = 2^n exp(r), r = x - n log 2, |r| <= log(2) / 2; relative error 2e-7. Below the normal numbers
   it is 0: others would be slow. */
static inline float exponential(float x)
{
    float too_small = x < -87.0f ? 0.0f : 1.0f;
    x = x > 89.0f ? 89.0f : x;
    x = x < -87.0f ? -87.0f : x;
    float shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;
    int32_t whole = (int32_t)(to_bits(shifted) - 0x4b400000u), half = whole >> 1;
    float r = x - n * 0.693145752f;
    r -= n * 1.42860677e-6f;
    float p = 1.0f + r * (1.0f + r * (0.5f + r * (0.166666672f + r * (0.0416664667f + r * (0.00833337f + r * 0.00139304f)))));
    return too_small * p * from_bits((uint32_t)(half + 127) << 23) * from_bits((uint32_t)(whole - half + 127) << 23);
}

/* P(Z > |a|) = t (b1 + t (b2 + ...)) exp(-a^2 / 2) / 2, t = 1 / (1 + p |a| / sqrt 2) (Abramowitz and
   Stegun 7.1.26, error 8e-8); `density` is exp(-a^2 / 2). */
static inline float tail(float a, float density)
{
    float t = 1.0f / (1.0f + 0.23164189f * fabsf(a));
    return t * (0.127414796f + t * (-0.142248368f + t * (0.710706871f + t * (-0.726576014f + t * 0.530702715f)))) * density;
}

/* Phi(a). */
static inline float normal_cdf(float a)
{
    float beyond = tail(a, exponential(-0.5f * a * a));
    return a > 0 ? 1 - beyond : beyond;
}

static inline float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

/* (1 - exp(-2 |x|)) / (1 + exp(-2 |x|)), or x - x^3 / 3 where that loses digits. */
static inline float hyperbolic_tangent(float x)
{
    float e = exponential(-2 * fabsf(x)), y = (1 - e) / (1 + e);
    y = fabsf(x) < 0.02f ? fabsf(x) * (1 - x * x * 0.333333333f) : y;
    return x < 0 ? -y : y;
}

/* Mean and variance of max(x, 0), x ~ N(m, v): with a = m / s mean = m P + s phi(a) and
   variance = v P + mean (m - mean), P = Phi(a). */
static inline void half_moments(float m, float v, float *mean, float *variance, float *above)
{
    float std = sqrtf(v < TINY ? TINY : v), a = m / std;
    /* Beyond 10 stds nothing is left that a float would show, but numbers that are too small to be fast. */
    float inside = fabsf(a) < 10 ? 1.0f : 0.0f;
    a = a > 10 ? 10 : a < -10 ? -10 : a;
    float density = inside * exponential(-0.5f * a * a), beyond = tail(a, density), p = a > 0 ? 1 - beyond : beyond;
    float found = m * p + std * 0.398942280f * density, spread = v * p + found * (m - found);
    *mean = found;
    *variance = spread < 0 ? 0 : spread;   /* NaN stays */
    *above = p;
}

/* Mean and variance of the larger of two (Clark, 1961): x + max(y - x, 0), x that of the larger mean. */
static inline void larger_moments(float m, float v, float n, float w, float *mean, float *variance)
{
    float half, spread, above, own = m >= n ? v : w;
    half_moments(-fabsf(m - n), v + w, &half, &spread, &above);
    spread += own * (1 - 2 * above);
    *mean = half + (m > n ? m : n);
    *variance = spread < 0 ? 0 : spread;
}
#endif
