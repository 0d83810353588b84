/* engine/packing.c: weights of a file as kernels want them; norms go into the weights before them. */
#include "inside.h"
#include <math.h>
#include <string.h>

static const pocket_weight *weight_in(const pocket *m, const member *part, int32_t operand)
{
    return operand == ABSENT ? NULL : &m->file->weights[part->first + (uint32_t)(-1 - operand)];
}

static uint32_t place_of(const pocket_weight *w, uint32_t j) { return w->index ? w->index[j] : j; }

static int is_there(const pocket_weight *w, uint32_t j) { return w->mean[j] != 0 || (w->std && w->std[j] != 0); }

static uint32_t count_there(const pocket_weight *w)
{
    uint32_t found = 0;
    for (uint32_t j = 0; j < w->count; j++)
        found += (uint32_t)is_there(w, j);
    return found;
}

/* Layers that only draw whole weights: recurrences, and attention with its projections. */
static int is_sampled(const pocket *m, int32_t operand)
{
    const char *name = m->file->weights[-1 - operand].name, *end = strrchr(name, '.');
    size_t length = end ? (size_t)(end - name) : 0;
    if (strstr(end ? end : name, "in_proj_weight") || strstr(end ? end : name, "q_proj_weight"))
        return 1;
    if (length < 8 || strncmp(end - 8, "out_proj", 8))
        return 0;
    for (uint32_t i = 0; i < m->weights; i++) {
        const char *other = m->file->weights[i].name;
        const char *rest = strncmp(other, name, length - 8) ? "" : other + length - 8;
        if (!strcmp(rest, "in_proj_weight") || !strcmp(rest, "q_proj_weight"))
            return 1;
    }
    return 0;
}

/* Whether noise of an operation's weights is the same at all of its positions. */
int is_common(const pocket *m, const operation *op)
{
    const pocket_weight *w = &m->file->weights[-1 - op->x[1]];
    int32_t bias = op->x[2];
    int together = w->draws_once || (bias != ABSENT && m->file->weights[-1 - bias].draws_once);
    return !m->facts.is_local || together || is_sampled(m, op->x[1]);
}

static int is_gated(const pocket *m, const member *part, const operation *op, int32_t weight)
{
    const pocket_weight *w = weight_in(m, part, weight);
    return op->row->code <= 2 && w->kind == POCKET_SPIKE_SLAB && w->inclusion && w->group == POCKET_PER_OUTPUT
        && !is_sampled(m, weight);
}

/* Sparse where what is left out saves more than tiles would. */
static int is_sparse_enough(const pocket *m, const kernel *k, uint32_t there, uint32_t size, int code)
{
    if (code == 2)                       /* of moments, sparse ones go together and dense ones do not */
        return k->outputs < TILE_OUTPUTS / 2 || there < size / (m->options.moments ? 2 : 3);
    return there < size / (m->is_small ? 3 : PACK);
}

static void plan_one(pocket *m, const member *part, kernel *k, operation *op, int32_t weight, int32_t bias)
{
    const pocket_weight *w = weight_in(m, part, weight), *b = weight_in(m, part, bias);
    uint32_t there = count_there(w);
    k->weight = weight, k->bias = bias;
    k->groups = op->row->code == 2 ? op->n[0] : 1;
    k->outputs = w->shape[0] / k->groups;
    k->depth = (int)(w->size / (uint32_t)w->shape[0]);
    k->is_random = w->std != NULL || (b && b->std);
    k->is_sparse = is_sparse_enough(m, k, there, w->size, op->row->code);
    k->parts = k->is_sparse && op->row->code == 2 ? parts_of(m, op, there / (uint32_t)w->shape[0]) : 1;
    size_t rows = (size_t)w->shape[0], blocks = (size_t)((k->outputs + PACK - 1) / PACK * k->groups);
    size_t numbers = k->is_sparse ? there : blocks * PACK * (size_t)k->depth;
    int wanted[PLANES] = {1, m->options.moments && w->std, m->options.moments, m->options.most_draws && w->std};
    for (int p = 0; p < PLANES; p++)
        k->values[p] = wanted[p] ? take(m, numbers + SLACK, sizeof(float)) : NULL;
    k->offset = take(m, (k->is_sparse ? there : (size_t)k->depth) + 1, sizeof *k->offset);
    k->start = k->is_sparse ? take(m, rows * (size_t)k->parts + 1, sizeof *k->start) : NULL;
    k->scale = take(m, rows, sizeof(float));
    k->gate = is_gated(m, part, op, weight) ? take(m, rows, sizeof(float)) : NULL;
    for (int p = 0; p < PLANES; p++)
        k->shift[p] = take(m, rows, sizeof(float));
}

/* The inputs' places, and where the rows of a sparse weight begin. */
static void place_inputs(const pocket *m, const member *part, kernel *k, const uint32_t *offsets)
{
    const pocket_weight *w = weight_in(m, part, k->weight);
    uint32_t depth = (uint32_t)k->depth, next = 0;
    for (uint32_t i = 0; !k->is_sparse && i < depth; i++)
        k->offset[i] = offsets ? offsets[i] : i;
    for (uint32_t j = 0; k->is_sparse && j < w->count; j++) {
        if (is_there(w, j)) {
            uint32_t place = place_of(w, j), row = place / depth, parts = (uint32_t)k->parts;
            k->offset[next++] = offsets ? offsets[place % depth] : place % depth;
            k->start[row * parts + (uint32_t)((uint64_t)(place % depth) * parts / depth) + 1] = next;
        }
    }
    /* Groups lie behind each other: `multiply` moves the input, so offsets are those in a group. */
    for (int i = 0; k->is_sparse && i < k->outputs * k->groups * k->parts; i++)
        if (k->start[i + 1] < k->start[i])
            k->start[i + 1] = k->start[i];
}

/* Some stored numbers as a plane has them. */
static void some_values(float *to, const pocket_weight *w, const kernel *k, uint32_t first, int count, int plane,
                        const run *r)
{
    uint32_t number = (uint32_t)(-1 - k->weight);
    if (plane == DRAWN) {
        numbers_drawn(to, w, first, count, r, number);
        return;
    }
    for (int i = 0; i < count; i++) {
        uint32_t j = first + (uint32_t)i;
        to[i] = k->gate && plane == MEAN ? w->mean[j] : k->gate && plane == VARIANCE ? w->std[j] * w->std[j]
              : k->gate && plane == SQUARE ? w->mean[j] * w->mean[j] : number_of(w, j, plane, r, number);
    }
}

/* Where a row of a dense weight begins among packed ones. */
static size_t packed_row(const kernel *k, uint32_t row)
{
    uint32_t group = row / (uint32_t)k->outputs, output = row % (uint32_t)k->outputs;
    size_t block = (size_t)group * (uint32_t)((k->outputs + PACK - 1) / PACK) + output / PACK;
    return block * (uint32_t)k->depth * PACK + output % PACK;
}

/* The packed weights of one plane: number after number of the file, whose places rise. */
static void fill_values(const pocket_weight *w, kernel *k, int plane, const run *r)
{
    enum { AT_ONCE = 256 };
    float some[AT_ONCE], *to = k->values[plane];
    uint32_t depth = (uint32_t)k->depth, row = 0, begin = 0, next = 0;
    size_t base = packed_row(k, 0);
    for (uint32_t first = 0; first < w->count; first += AT_ONCE) {
        int count = (int)(w->count - first < AT_ONCE ? w->count - first : AT_ONCE);
        some_values(some, w, k, first, count, plane, r);
        for (int i = 0; i < count; i++) {
            uint32_t place = place_of(w, first + (uint32_t)i), before = row;
            if (k->is_sparse) {
                if (is_there(w, first + (uint32_t)i))
                    to[next++] = some[i];
                continue;
            }
            for (; place - begin >= depth; row++)
                begin += depth;
            base = row == before ? base : packed_row(k, row);
            to[base + (size_t)(place - begin) * PACK] = some[i];
        }
    }
}

static void fill_gates(const pocket_weight *w, kernel *k)
{
    for (uint32_t j = 0; j < w->count; j++)
        k->gate[place_of(w, j) / (uint32_t)k->depth] = w->inclusion[j];
}

static float at(const run *r, int32_t operand, int plane, int i, float otherwise)
{
    const float *found = operand == ABSENT ? NULL : weight_of(r, operand, plane);
    return found ? found[i] : otherwise;
}

/* y = (A x + b - mean) gamma / sqrt(variance + eps) + beta, as A x scale + shift. */
static void fill_epilogue(const run *r, kernel *k, const operation *norm, int plane)
{
    for (int i = 0; i < k->outputs * k->groups; i++) {
        float scale = 1, shift = 0;
        if (norm) {
            scale = at(r, norm->x[1], MEAN, i, 1) / sqrtf(at(r, norm->x[4], MEAN, i, 0) + norm->r[0]);
            shift = at(r, norm->x[2], MEAN, i, 0) - at(r, norm->x[3], MEAN, i, 0) * scale;
        }
        if (plane == MEAN)                   /* others may be reading */
            k->scale[i] = scale;
        float bias = at(r, k->bias, plane, i, 0);
        k->shift[plane][i] = plane == VARIANCE ? bias * scale * scale : bias * scale + shift;
    }
}

/* A plane of one kernel: numbers, and what is added behind. */
void kernel_fill(run *r, const operation *op, int number, int plane)
{
    const pocket *m = r->model;
    kernel *k = &r->member->kernels[op->first_kernel + number];
    const pocket_weight *w = weight_in(m, r->member, k->weight);
    int drawn = r->drawn;
    r->drawn = plane == DRAWN;
    if (k->values[plane] && (plane != DRAWN || k->values[DRAWN] != k->values[MEAN]))
        fill_values(w, k, plane, r);
    else if (plane == DRAWN && !k->values[DRAWN])
        k->values[DRAWN] = k->values[MEAN];
    if (plane == MEAN && k->gate)
        fill_gates(w, k);
    fill_epilogue(r, k, op->norm < 0 ? NULL : &m->program.list[op->norm], plane);
    r->drawn = drawn;
}

/* Kernels of an operation: room, then all planes that do not change. */
void kernels_make(run *r, operation *op, const uint32_t *offsets)
{
    pocket *m = r->model;
    int count = op->row->code <= 2 ? 1 : 2;
    for (int i = 0; i < count; i++) {
        kernel *k = &r->member->kernels[op->first_kernel + i];
        plan_one(m, r->member, k, op, op->x[1 + i], op->x[count == 1 ? 2 : 3 + i]);
        if (m->error[0])
            return;
        place_inputs(m, r->member, k, offsets);
        for (int plane = MEAN; plane < DRAWN; plane++)
            kernel_fill(r, op, i, plane);
        if (!k->values[DRAWN])
            kernel_fill(r, op, i, DRAWN);
#ifdef HAS_INT8
        const pocket_weight *w = weight_in(m, r->member, k->weight);
        if (m->options.int8 && !m->options.moments && count == 1)
            codes_make(m, k, op->row->code == 2 ? k->depth / w->shape[1] : 1);
#endif
    }
}

/* A weight that is no kernel: as it lies in the file if it is certain and whole, else spread out. */
void dense_make(run *r, int32_t operand)
{
    pocket *m = r->model;
    const pocket_weight *w = weight_in(m, r->member, operand);
    dense *d = &r->member->dense[-1 - operand];
    if (d->plane[MEAN])
        return;
    if (!w->std && !w->index) {
        d->plane[MEAN] = d->plane[DRAWN] = w->mean;
        return;
    }
    for (int p = 0; p < PLANES; p++)
        if (p == MEAN || (w->std && p != SQUARE))
            d->plane[p] = d->owned[p] = take(m, w->size, sizeof(float));
    if (!w->std)
        d->plane[DRAWN] = d->plane[MEAN];
    if (m->error[0])
        return;
    dense_fill(r, operand, MEAN);
    if (w->std)
        dense_fill(r, operand, VARIANCE);
}

void dense_fill(const run *r, int32_t operand, int plane)
{
    const pocket_weight *w = weight_in(r->model, r->member, operand);
    float *to = r->member->dense[-1 - operand].owned[plane];
    for (uint32_t j = 0; to && j < w->count; j++)
        to[place_of(w, j)] = number_of(w, j, plane, r, (uint32_t)(-1 - operand));
}
