/* engine/places.c: shapes, and where the weights of a sparse tensor are. */
#include "weights.h"
#include <string.h>

enum { DENSE = -1, WEIGHTS, BLOCKS, CHANNELS, SWAPPED, STRUCTURES, LARGEST_BLOCK = 16, DIGIT = 1 << 16 };

/* An array that its family has. */
const array *array_of(const owner *whose, const char *role) {
    const array *a = whose->arrays;
    while (strcmp(a->role, role)) a++;
    return a;
}

int is_real(const array *a) { return a->type <= BFLOAT16; }
int is_scalar(const array *a, int type) { return a->type == type && !a->rank; }

/* One more axis, if the engine's types can hold it. */
static int put_axis(reading *r, uint64_t size, uint64_t *numbers, pocket_weight *w) {
    if (w->rank == MOST_AXES || size > INT32_MAX || (size && *numbers > UINT32_MAX / size))
        return refuse(r, "%.80s has more axes or numbers than this reader takes", w->name);
    w->shape[w->rank++] = (int32_t)size;
    *numbers *= size;
    w->size = (uint32_t)*numbers;
    return 0;
}

/* A shape that is stored as whole numbers. */
int shape_of(reading *r, const array *dimensions, pocket_weight *w) {
    uint64_t numbers = w->size = 1;
    int good = dimensions->type == INT64 && dimensions->rank == 1;
    for (uint64_t k = 0; good && k < dimensions->size; k++) {
        int64_t size = whole_at(dimensions, k);
        good = size >= 1;
        if (good) TRY(put_axis(r, (uint64_t)size, &numbers, w));
    }
    return good ? 0 : refuse(r, "%.80s: shape must be a list of positive whole numbers", w->name);
}

/* The shape of an array that has all numbers of a tensor. */
int shape_from(reading *r, const array *dense, pocket_weight *w) {
    uint64_t numbers = w->size = 1;
    for (int axis = 0; axis < dense->rank; axis++) TRY(put_axis(r, dense->shape[axis], &numbers, w));
    w->count = w->size;
    return 0;
}

/* Numbers in a unit: 1; of blocks the largest number of outputs up to 16 that divides them; of channels all. */
static uint32_t unit_of(const pocket_weight *w, int structure) {
    uint32_t outputs = (uint32_t)w->shape[0], width = LARGEST_BLOCK;
    if (structure == WEIGHTS || structure == SWAPPED || w->rank < 2) return 1;
    if (structure == CHANNELS) return w->size / (uint32_t)w->shape[1];
    while (outputs % width) width--;
    return width;
}

/* The flat place of number `part` of a unit. */
static uint64_t flat(const pocket_weight *w, int structure, uint32_t unit, uint32_t part, uint32_t width) {
    if (structure == WEIGHTS || w->rank < 2) return unit;
    uint32_t outputs = (uint32_t)w->shape[0], inputs = (uint32_t)w->shape[1];
    uint32_t rest = w->size / outputs, tail = rest / inputs;
    if (structure == BLOCKS) return ((uint64_t)(unit / rest) * width + part) * rest + unit % rest;
    if (structure == CHANNELS) return ((uint64_t)(part / tail) * inputs + unit) * tail + part % tail;
    uint32_t input = unit / (outputs * tail), output = unit / tail % outputs;
    return ((uint64_t)output * inputs + input) * tail + unit % tail;
}

/* Sorts by places, sixteen bits at a time, the lowest first. */
static int sort_places(reading *r, support *found) {
    uint64_t *other;
    uint32_t *begin;
    TAKE(brief, other, found->count);
    for (int shift = 32; shift < 64; shift += 16) {
        TAKE(brief, begin, DIGIT + 1);
        uint64_t *from = found->rising;
        for (uint32_t k = 0; k < found->count; k++) begin[(from[k] >> shift & (DIGIT - 1)) + 1]++;
        for (uint32_t k = 0; k < DIGIT; k++) begin[k + 1] += begin[k];
        for (uint32_t k = 0; k < found->count; k++) other[begin[from[k] >> shift & (DIGIT - 1)]++] = from[k];
        found->rising = other;
        other = from;
    }
    return 0;
}

/* The places of the units that are there, which rise below their number; `w` has its shape. */
static int units_of(reading *r, const array *index, int structure, pocket_weight *w, support *out) {
    if (structure == SWAPPED && w->rank < 2) return refuse(r, "%.80s: a transposed tensor needs two axes", w->name);
    uint32_t width = unit_of(w, structure), units = w->size / width;
    int64_t last = -1, most = index->size > units ? -1 : (int64_t)units - 1;
    if ((index->type != INT32 && index->type != INT64) || index->rank != 1 || !index->size)
        return refuse(r, "%.80s: index must be a list of whole numbers", w->name);
    if (most < 0) return refuse(r, "%.80s has more active units than units", w->name);
    out->count = (uint32_t)index->size * width;
    TAKE(brief, out->rising, out->count);
    for (uint32_t k = 0, number = 0; k < index->size; k++) {
        int64_t unit = whole_at(index, k);
        if (unit <= last || unit > most)
            return refuse(r, "%.80s: index must rise and stay below %lu", w->name, (unsigned long)units);
        last = unit;
        for (uint32_t part = 0; part < width; part++, number++)
            out->rising[number] = flat(w, structure, (uint32_t)unit, part, width) << 32 | number;
    }
    return structure == WEIGHTS || w->rank < 2 ? 0 : sort_places(r, out);
}

/* Shape and places of a sparse or shared tensor. */
int places_of(reading *r, const owner *q, pocket_weight *w, support *out) {
    const array *code = array_of(q, "structure"), *index = array_of(q, "index");
    int is_shared = q->codebook >= 0;
    *out = (support){0};
    TRY(shape_of(r, array_of(q, "shape"), w));
    int64_t structure = is_scalar(code, INT64) ? whole_at(code, 0) : STRUCTURES;
    if (structure < (is_shared ? DENSE : WEIGHTS) || structure >= STRUCTURES)
        return refuse(r, "%.80s: no structure has this number", w->name);
    if (structure == DENSE) {
        out->count = w->size;
        if (index->rank != 1 || index->size)
            return refuse(r, "%.80s: index must be empty where all weights are there", w->name);
    } else {
        TRY(units_of(r, index, (int)structure, w, out));
        const array *mean = is_shared ? NULL : array_of(q, "mean");
        uint32_t width = unit_of(w, (int)structure);
        int rank = 1 + ((structure == BLOCKS || structure == CHANNELS) && w->rank > 1);
        if (mean && (mean->rank != rank || mean->shape[0] != index->size || (rank == 2 && mean->shape[1] != width)))
            return refuse(r, "%.80s: mean has another shape than its active units need", w->name);
    }
    w->count = out->count;
    return 0;
}

/* Gives the weight its rising places. */
int index_of(reading *r, const support *where, pocket_weight *w) {
    uint32_t *index;
    if (!where->rising) return 0;
    TAKE(kept, index, where->count);
    for (uint32_t k = 0; k < where->count; k++) index[k] = (uint32_t)(where->rising[k] >> 32);
    w->index = index;
    return 0;
}

/* Which of the stored numbers stands at a rising place. */
uint32_t stored_at(const support *where, uint32_t number) {
    return where->rising ? (uint32_t)where->rising[number] : number;
}
