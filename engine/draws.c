/* engine/draws.c: random numbers by counting: a number depends on seed, stream and place alone. */
#include "inside.h"
#include <math.h>
#include <string.h>

/* splitmix64 of a counter that three words are mixed into. */
static uint64_t mixed(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t bits(uint64_t seed, uint64_t stream, uint64_t place)
{
    return mixed(mixed(mixed(seed) ^ stream) ^ place);
}

/* Above 0, below 1. */
float uniform_of(uint64_t seed, uint64_t stream, uint64_t place)
{
    return ((float)(bits(seed, stream, place) >> 41) + 0.5f) * (1.0f / 8388608.0f);
}

/* A bijection of 32 bits, each of which changes half of the others. */
static uint32_t stirred(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

/* log x for x above 0: x = 2^n m, sqrt(1/2) <= m < sqrt(2), log m = 2 (s + s^3 / 3 + ...), s = (m - 1) / (m + 1). */
static float log_of(float x)
{
    uint32_t word;
    memcpy(&word, &x, sizeof word);
    int32_t n = (int32_t)(word - 0x3f3504f3u) >> 23;
    word -= (uint32_t)n << 23;
    memcpy(&x, &word, sizeof x);
    float s = (x - 1) / (x + 1), q = s * s;
    float series = 1 + q * (1.0f / 3 + q * (1.0f / 5 + q * (1.0f / 7 + q * (1.0f / 9))));
    return (float)n * 0.69314718f + 2 * s * series;
}

/* sin x for |x| <= pi / 2, by its series up to x^11. */
static float sine_of(float x)
{
    float q = x * x;
    return x * (1 - q / 6 * (1 - q / 20 * (1 - q / 42 * (1 - q / 72 * (1 - q / 110)))));
}

/* sqrt(-2 log u) cos(2 pi v) at places from the first on; loops that compilers make vectors of. */
void normals_at(float *z, uint64_t seed, uint64_t stream, const uint32_t *place, uint32_t first, int count)
{
    uint64_t key = mixed(mixed(seed) ^ stream);
    uint32_t low = (uint32_t)key, high = (uint32_t)(key >> 32);
    for (int i = 0; i < count; i++) {
        uint32_t a = stirred(stirred((place ? place[i] : first + (uint32_t)i) ^ low) ^ high), b = stirred(a + 0x9e3779b9u);
        float u = ((float)(int32_t)(a >> 8) + 0.5f) * (1.0f / 16777216.0f);
        float v = (float)(int32_t)(b >> 8) * (1.0f / 16777216.0f) - 0.5f;
        z[i] = sqrtf(-2 * log_of(u)) * sine_of(6.2831853f * (fabsf(v) - 0.25f));
    }
}

static float normal_of(uint64_t seed, uint64_t stream, uint32_t place)
{
    float z;
    normals_at(&z, seed, stream, NULL, place, 1);
    return z;
}

/* Streams of numbers: each weight has two, and each codebook and operation one. */
enum { OF_WEIGHT, OF_INCLUSION, OF_CODEBOOK, OF_DROPOUT };

static uint64_t stream_of(const run *r, int kind, uint64_t number)
{
    return ((uint64_t)r->draw << 32 | number) * 4 + (uint64_t)kind + ((uint64_t)(r->member - r->model->member) << 56);
}

/* The inclusion variable of a number: one of its own, or that of its input or output. */
static uint64_t group_of(const pocket_weight *w, uint32_t j)
{
    uint64_t place = w->index ? w->index[j] : j, behind = 1;
    if (w->group == POCKET_PER_WEIGHT)
        return place;
    for (int i = w->rank - 1; i > w->group_axis; i--)
        behind *= (uint64_t)w->shape[i];
    return place / behind % (uint64_t)w->shape[w->group_axis];
}

static float drawn(const pocket_weight *w, uint32_t j, const run *r, uint32_t number)
{
    uint32_t place = w->index ? w->index[j] : j;
    int is_entry = w->label && w->draws_once && w->codebook >= 0;
    float z = is_entry ? normal_of(r->seed, stream_of(r, OF_CODEBOOK, (uint64_t)w->codebook), w->label[j])
                       : normal_of(r->seed, stream_of(r, OF_WEIGHT, number), place);
    float value = w->mean[j] + w->std[j] * z;
    if (w->kind != POCKET_SPIKE_SLAB || !w->inclusion)
        return value;
    return uniform_of(r->seed, stream_of(r, OF_INCLUSION, number), group_of(w, j)) < w->inclusion[j] ? value : 0;
}

/* Stored number j: mean, variance, square of the mean, or a draw. With inclusion p of a slab N(m, s^2)
   the mean is p m, the variance p s^2 + p (1 - p) m^2. */
float number_of(const pocket_weight *w, uint32_t j, int plane, const run *r, uint32_t number)
{
    float m = w->mean[j], s = w->std ? w->std[j] : 0;
    float p = w->kind == POCKET_SPIKE_SLAB && w->inclusion ? w->inclusion[j] : 1;
    switch (plane) {
    case MEAN: return p * m;
    case VARIANCE: return p * s * s + p * (1 - p) * m * m;
    case SQUARE: return p * m * p * m;
    default: return w->std ? drawn(w, j, r, number) : p * m;
    }
}

/* Draws of stored numbers from the first on, as `number_of` makes them one by one. */
void numbers_drawn(float *to, const pocket_weight *w, uint32_t first, int count, const run *r, uint32_t number)
{
    int is_entry = w->label && w->draws_once && w->codebook >= 0, is_slab = w->kind == POCKET_SPIKE_SLAB && w->inclusion;
    if (is_entry || is_slab || !w->std) {
        for (int i = 0; i < count; i++)
            to[i] = number_of(w, first + (uint32_t)i, DRAWN, r, number);
        return;
    }
    normals_at(to, r->seed, stream_of(r, OF_WEIGHT, number), w->index ? w->index + first : NULL, first, count);
    for (int i = 0; i < count; i++)
        to[i] = w->mean[first + (uint32_t)i] + w->std[first + (uint32_t)i] * to[i];
}

/* Every weight of this member, once for all rows of a call. */
void weights_draw(run *r)
{
    pocket *m = r->model;
    for (uint32_t w = 0; w < m->weights; w++)
        if (r->member->dense[w].owned[DRAWN])
            dense_fill(r, -1 - (int32_t)w, DRAWN);
    for (int i = 0; i < m->program.operations; i++) {
        const operation *op = &m->program.list[i];
        for (int j = 0; op->first_kernel >= 0 && j < (op->row->code <= 2 ? 1 : 2); j++)
            if (r->member->kernels[op->first_kernel + j].is_random)
                kernel_fill(r, op, j, DRAWN);
    }
}

/* The chance of every number, or channel, is that of the operation; what stays is divided by its rest. */
void drop(const run *r, const operation *op, const float *x, float *y)
{
    const slot *s = slot_of(r, op->result);
    size_t each = op->n[0] && s->shape.rank ? s->size / (size_t)s->shape.side[0] : 1;
    float rest = 1 - op->r[0];
    for (size_t i = 0; i < s->size; i++)
        for (size_t l = 0; l < r->lanes; l++) {
            uint64_t place = (uint64_t)(r->first_row + l) << 32 | i / each;
            float u = uniform_of(r->seed, stream_of(r, OF_DROPOUT, (uint64_t)op->result), place);
            y[i * r->lanes + l] = u < op->r[0] ? 0 : x[i * r->lanes + l] / rest;
        }
}

/* z with P(Z < z) = p, by Newton's method from a rough start. */
static float quantile(float p)
{
    double z = 4.91 * (pow((double)p, 0.14) - pow(1 - (double)p, 0.14));
    for (int i = 0; i < 4; i++) {
        double error = 0.5 * erfc(-z * 0.70710678118654752) - (double)p;
        z -= error / (0.3989422804014327 * exp(-z * z / 2));
    }
    return (float)z;
}

/* (number, dimensions) normals in pairs z and -z, whose sizes are equally likely ones, in an order and
   with signs of its own in each dimension: mean 0, variance 1 exactly; the same ones always. */
void plain_normals(float *z, int number, int dimensions)
{
    int half = number / 2;
    double square = 0;
    for (int i = 0; i < half; i++) {
        double size = quantile(((float)i + 0.5f) / (2 * (float)half) + 0.5f);
        square += 2 * size * size;
    }
    float unit = half ? (float)sqrt((number - 1) / square) : 0;
    for (int d = 0; d < dimensions; d++) {
        for (int i = 0; i < half; i++)
            z[i * dimensions + d] = unit * quantile(((float)i + 0.5f) / (2 * (float)half) + 0.5f);
        for (int i = half - 1; i > 0; i--) {
            int j = (int)(bits(20, (uint64_t)d, (uint64_t)i) % (uint64_t)(i + 1));
            float kept = z[i * dimensions + d];
            z[i * dimensions + d] = z[j * dimensions + d];
            z[j * dimensions + d] = kept;
        }
        for (int i = 0; i < half; i++) {
            if (bits(21, (uint64_t)d, (uint64_t)i) & 1)
                z[i * dimensions + d] = -z[i * dimensions + d];
            z[(half + i) * dimensions + d] = -z[i * dimensions + d];
        }
        if (number % 2)
            z[(number - 1) * dimensions + d] = 0;
    }
}
