/* engine/draws.c: random numbers by counting: a number depends on seed, stream and place alone. */
#include "inside.h"
#include <math.h>

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

/* sqrt(-2 log u) cos(2 pi v). */
float normal_of(uint64_t seed, uint64_t stream, uint64_t place)
{
    uint64_t both = bits(seed, stream, place);
    float u = ((float)(both >> 41) + 0.5f) * (1.0f / 8388608.0f), v = (float)(both & 0x7fffff) * (1.0f / 8388608.0f);
    return sqrtf(-2 * logf(u)) * cosf(6.2831853f * v);
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
