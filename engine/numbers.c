/* engine/numbers.c: numbers of all types, and exponentials that are the same everywhere. */
#include "numbers.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#if FLT_EVAL_METHOD == 2 || FLT_EVAL_METHOD < 0 || defined(__FAST_MATH__)
#error "exponentials of two doubles need every operation rounded as IEEE 754 says"
#endif

enum { RANGES = 8, WIDEST = 1 << 16, HALVINGS = 8, TERMS = 10 };
#define MOST_LOG_STD 600.0

int is_finite(double value) { return fabs(value) <= DBL_MAX; }

/* Rounds to nearest, beyond the largest float32 to infinity (a cast would be undefined). */
float single_of(double value) {
    /* halfway between the largest float32 and 2^128 */
    if (fabs(value) >= 340282356779733661637539395458142568448.0) return value > 0 ? INFINITY : -INFINITY;
    return (float)value;
}

/* The float with these bits. */
static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

/* float16: (-1)^s 2^(e - 15) (1 + d / 1024), or d 2^-24 where e = 0. */
float half_value(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits >> 15) << 31, exponent = bits >> 10 & 31, digits = bits & 1023;
    if (exponent == 31) return float_of(sign | 0x7F800000 | digits << 13);
    if (exponent) return float_of(sign | (exponent + 112) << 23 | digits << 13);
    float small = (float)digits / 16777216;  /* digits 2^-24 */
    return sign ? -small : small;
}

/* A number of an array of integers or bool. */
int64_t whole_at(const array *a, uint64_t place) {
    const uint8_t *at = a->data + place * width_of(a->type);
    int64_t eight;
    int32_t four;
    int16_t two;
    int8_t one;
    switch (a->type) {
        case INT64: memcpy(&eight, at, 8); return eight;
        case INT32: memcpy(&four, at, 4); return four;
        case INT16: memcpy(&two, at, 2); return two;
        case INT8: memcpy(&one, at, 1); return one;
        case BOOLEAN: return *at != 0;
        default: return *at;
    }
}

/* A number of any array. */
double real_at(const array *a, uint64_t place) {
    const uint8_t *at = a->data + place * width_of(a->type);
    double wide;
    float single;
    uint16_t bits;
    switch (a->type) {
        case FLOAT32: memcpy(&single, at, 4); return single;
        case FLOAT64: memcpy(&wide, at, 8); return wide;
        case FLOAT16: memcpy(&bits, at, 2); return half_value(bits);
        case BFLOAT16: memcpy(&bits, at, 2); return float_of((uint32_t)bits << 16);
        default: return (double)whole_at(a, place);
    }
}

typedef struct pair { double high, low; } pair;  /* their sum, of about 106 bits (Dekker 1971) */

/* a + b exactly (Knuth). */
static pair sum(double a, double b) {
    double high = a + b, part = high - a;
    return (pair){high, (a - (high - part)) + (b - part)};
}

/* a + b within 2^-104 or so. */
static pair add(pair a, pair b) {
    pair high = sum(a.high, b.high);
    return sum(high.high, high.low + (a.low + b.low));
}

/* a b within 2^-104 or so. */
static pair times(pair a, pair b) {
    double high = a.high * b.high, low = fma(a.high, b.high, -high);
    return sum(high, low + (a.high * b.low + a.low * b.high));
}

/* exp(k step), rounded once: x = n ln 2 + 2^8 y, the series of exp(y) - 1 = z, and z <- 2 z + z^2 eight times. */
static double exp_of_multiple(int64_t k, double step) {
    static const pair minus_ln2 = {-0.69314718055994530942, -2.319046813846299558e-17};
    double product = (double)k * step, n = floor(product / 0.69314718055994530942 + 0.5);
    pair x = sum(product, fma((double)k, step, -product)), z = {0, 0};
    x = add(x, times((pair){n, 0}, minus_ln2));
    x.high = ldexp(x.high, -HALVINGS);
    x.low = ldexp(x.low, -HALVINGS);
    for (int term = TERMS; term; term--) {  /* z = x / term (1 + z) */
        double share = 1.0 / term;
        pair part = {share, fma(-share, term, 1.0) / term};
        z = times(times(x, part), add((pair){1, 0}, z));
    }
    for (int k2 = 0; k2 < HALVINGS; k2++) z = add(add(z, z), times(z, z));
    return ldexp(add((pair){1, 0}, z).high, (int)n);
}

/* From the table, where there is one. */
double exp_of(const ranges *own, int64_t k) {
    if (!own->known) return exp_of_multiple(k, own->step);
    double *known = own->known + (k - own->low[0]);
    if (*known == 0) *known = exp_of_multiple(k, own->step);
    return *known;
}

/* Rising. */
static int by_size(const void *one, const void *other) {
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

/* The sorted k at the places n i / 8, by counting or by sorting. */
static int cuts_of(reading *r, const int64_t *k, uint64_t count, int64_t width, ranges *out) {
    int64_t *sorted;
    if (!out->known) {
        TAKE(brief, sorted, count);
        memcpy(sorted, k, (size_t)count * sizeof *k);
        qsort(sorted, (size_t)count, sizeof *sorted, by_size);
        for (uint64_t i = 1; i < RANGES; i++) out->low[i] = sorted[i * count / RANGES];
        return 0;
    }
    uint64_t *times_seen, below = 0, i = 1;
    TAKE(brief, times_seen, (uint64_t)width);
    for (uint64_t j = 0; j < count; j++) times_seen[k[j] - out->low[0]]++;
    for (int64_t v = 0; v < width; v++) {
        for (below += times_seen[v]; i < RANGES && i * count / RANGES < below; i++) out->low[i] = out->low[0] + v;
    }
    return 0;
}

/* Where the eight runs of one array of means are cut, and a table for their exponentials. */
int ranges_of(reading *r, const int64_t *k, uint64_t count, double step, ranges *out) {
    int64_t least = k[0], most = k[0];
    for (uint64_t j = 1; j < count; j++) {
        if (k[j] < least) least = k[j];
        if (k[j] > most) most = k[j];
    }
    if ((double)(most > -least ? most : -least) * step > MOST_LOG_STD) return refuse(r, "a log-std is out of bounds");
    int64_t width = most - least + 1;
    out->count = count < RANGES ? 1 : RANGES;
    out->step = step;
    out->low[0] = least;
    out->low[out->count] = most + 1;
    out->known = NULL;
    if (width <= WIDEST && (uint64_t)width <= 4 * count + 64) TAKE(brief, out->known, (uint64_t)width);
    return out->count == 1 ? 0 : cuts_of(r, k, count, width, out);
}
