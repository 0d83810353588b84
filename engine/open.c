/* engine/open.c: a program that fits its weights, their kernels, and one arena for all buffers. */
#include "inside.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *take(pocket *m, size_t count, size_t size)
{
    if (m->block_count == m->block_room) {
        int room = m->block_room ? 2 * m->block_room : 64;
        void **more = realloc(m->blocks, (size_t)room * sizeof *more);
        if (!more)
            return snprintf(m->error, 256, "there is no memory"), NULL;
        m->blocks = more;
        m->block_room = room;
    }
    void *found = calloc(count ? count : 1, size);
    if (!found)
        return snprintf(m->error, 256, "there is no memory"), NULL;
    m->blocks[m->block_count++] = found;
    m->memory += count * size;
    return found;
}

static const slot *slot_in(const pocket *m, int32_t operand)
{
    return &m->slots[operand >= 0 ? operand : m->weight_slot[-1 - operand]];
}

slot *slot_of(const run *r, int32_t operand)
{
    return &r->model->slots[operand >= 0 ? operand : r->model->weight_slot[-1 - operand]];
}

size_t count_at(const run *r, int32_t operand) { return slot_of(r, operand)->size * r->lanes; }
float *mean_of(const run *r, int32_t operand) { return r->model->arena + slot_of(r, operand)->mean; }

float *variance_of(const run *r, int32_t operand)
{
    const slot *s = slot_of(r, operand);
    return r->moments && s->is_random ? r->model->arena + s->variance : NULL;
}

float *plane_of(const run *r, int32_t operand)
{
    return r->plane == VARIANCE ? variance_of(r, operand) : mean_of(r, operand);
}

const float *weight_of(const run *r, int32_t operand, int plane)
{
    return operand == ABSENT ? NULL : r->member->dense[-1 - operand].plane[plane];
}

static void count_members(pocket *m)
{
    m->members = m->file->members > 1 ? (int)m->file->members : 1;
    m->weights = m->file->count;
    m->member = take(m, (size_t)m->members, sizeof *m->member);
    for (int i = 0; m->member && m->members > 1 && i < m->members; i++) {
        char begin[32];
        uint32_t first = 0, count = 0;
        size_t length = (size_t)snprintf(begin, sizeof begin, "members.%d.", i);
        while (first < m->file->count && strncmp(m->file->weights[first].name, begin, length))
            first++;
        while (first + count < m->file->count && !strncmp(m->file->weights[first + count].name, begin, length))
            count++;
        if (i > 0 && count != m->weights)
            snprintf(m->error, 256, "member %d has %u weights, the first %u", i, count, m->weights);
        m->member[i].first = first;
        m->weights = count;
    }
}

/* Members have weights of one shape. */
static int check_members(pocket *m)
{
    for (int i = 1; i < m->members; i++)
        for (uint32_t w = 0; w < m->weights; w++) {
            const pocket_weight *a = &m->file->weights[m->member[0].first + w], *b = &m->file->weights[m->member[i].first + w];
            if (a->rank != b->rank || memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape))
                return snprintf(m->error, 256, "%s has another shape than in the first member", b->name), 1;
        }
    return 0;
}

/* What operand i is used for: 'x' like a buffer, 'k' packed, 'd' as it is. */
static char use_of(const operation *op, int i)
{
    int code = op->row->code, left = i;
    const char *letter = op->row->fields;
    while (!strchr("xywv", *letter) || left-- > 0)
        letter++;
    if (*letter == 'x' || *letter == 'y')
        return 'x';
    return (code <= 2 && i == 1) || ((code == 7 || code == 8) && i <= 2) ? 'k' : 'd';
}

static void enter_slot(pocket *m, int32_t operand)
{
    if (operand == ABSENT || operand >= 0 || m->weight_slot[-1 - operand] >= 0)
        return;
    const pocket_weight *w = &m->file->weights[m->member[0].first + (uint32_t)(-1 - operand)];
    slot *s = &m->slots[m->slot_count];
    m->weight_slot[-1 - operand] = m->slot_count++;
    s->shape.rank = w->rank;
    for (int a = 0; a < w->rank; a++)
        s->shape.side[a] = w->shape[a];
    s->size = w->size;
    s->is_random = w->std != NULL;
    if (w->size == 0)
        snprintf(m->error, 256, "%s is empty", w->name);
}

static int make_slots(pocket *m)
{
    program *p = &m->program;
    size_t most = (size_t)p->buffers + m->weights;
    m->slots = take(m, most + 1, sizeof *m->slots);
    m->weight_slot = take(m, (size_t)m->weights + 1, sizeof *m->weight_slot);
    if (!m->slots || !m->weight_slot)
        return 1;
    memset(m->weight_slot, -1, sizeof *m->weight_slot * ((size_t)m->weights + 1));
    for (m->slot_count = 0; m->slot_count < p->buffers; m->slot_count++) {
        m->slots[m->slot_count].shape = p->shapes[m->slot_count];
        m->slots[m->slot_count].size = (size_t)numbers_of(&p->shapes[m->slot_count]);
    }
    for (int i = 0; i < p->operations; i++) {
        operation *op = &p->list[i];
        for (int j = 0; j < op->operands; j++)
            if (use_of(op, j) == 'x')
                enter_slot(m, op->x[j]);
        for (int j = 0; j < op->many_count; j++)
            enter_slot(m, op->many[j]);
        if (op->row->code <= 2 || op->row->code == 7 || op->row->code == 8) {
            op->first_kernel = m->kernels;
            m->kernels += op->row->code <= 2 ? 1 : 2;
        }
    }
    for (int i = 0; i < p->places; i++)
        enter_slot(m, p->place[i].operand);
    return m->error[0] != 0;
}

static int is_certain(const pocket *m, const operation *norm)
{
    for (int i = 1; i < 5; i++)
        for (int k = 0; norm->x[i] != ABSENT && k < m->members; k++)
            if (m->file->weights[m->member[k].first + (uint32_t)(-1 - norm->x[i])].std)
                return 0;
    return 1;
}

/* Norms that are folded, and operations that leave a buffer as it is: `root` is whose memory it has. */
static void simplify(pocket *m, int *uses, int *root)
{
    program *p = &m->program;
    for (int i = 0; i < p->operations; i++) {
        for (int j = 0; j < p->list[i].operands; j++)
            if (p->list[i].x[j] >= 0)
                uses[p->list[i].x[j]]++;
        for (int j = 0; j < p->list[i].many_count; j++)
            if (p->list[i].many[j] >= 0)
                uses[p->list[i].many[j]]++;
    }
    for (int i = 0; i < p->places; i++)
        if (p->place[i].operand >= 0)
            uses[p->place[i].operand]++;
    uses[p->output]++;
    for (int i = 0; i < p->buffers; i++)
        root[i] = i;
    for (int i = 0; i < p->operations; i++) {
        operation *op = &p->list[i], *from = op->operands && op->x[0] >= p->inputs ? &p->list[op->x[0] - p->inputs] : NULL;
        int code = op->row->code;
        if (op->operands && op->x[0] >= 0 && (code == 19 || (code == 33 && !m->facts.keeps_dropout))) {
            op->skipped = 1;
            root[op->result] = root[op->x[0]];
        }
        if (code != 3 || !from || uses[from->result] != 1 || !is_certain(m, op))
            continue;
        if (from->row->code == 2 || (from->row->code == 1 && m->slots[from->result].shape.rank == 1)) {
            from->norm = i;
            op->skipped = 1;
            root[op->result] = root[from->result];
        }
    }
}

static size_t own_memory(const pocket *m, const operation *op)
{
    const slot *x = op->operands ? slot_in(m, op->x[0]) : NULL, *out = &m->slots[op->result];
    size_t found = 1;
    switch (op->row->code) {
    case 7: case 8: return 2 * (size_t)(out->shape.side[0] + 8) * 4 * (size_t)out->shape.side[1];
    case 9: return 2 * (size_t)x->shape.side[x->shape.rank - 2] * (size_t)slot_in(m, op->x[1])->shape.side[x->shape.rank - 2];
    case 24:
        for (int i = 0; i < op->l[0].count; i++)
            found *= (size_t)op->l[0].at[i];
        return 2 * found * ROWS;
    case 27: case 28: return x->size;
    case 29: return 2 * x->size;
    default: return 0;
    }
}

typedef struct live { size_t begin, end; int last; } live;

/* First fit, in the order of results; what was read for the last time makes room. */
static size_t lay_out(pocket *m, const int *root, int *last, live *list, size_t lanes)
{
    program *p = &m->program;
    size_t most = 0, planes = m->options.moments ? 2 : 1;
    int count = 0;
    for (int s = 0; s < m->slot_count; s++) {
        int weights = m->slot_count - p->buffers, number = s < weights ? p->buffers + s : s - weights;  /* they stay */
        int now = number < p->inputs || number >= p->buffers ? -1 : number - p->inputs;
        int place = 0, kept = 0;
        if (number < p->buffers && root[number] != number)
            continue;
        slot *own = &m->slots[number];
        for (int i = 0; i < count; i++)
            if (list[i].last >= now)
                list[kept++] = list[i];
        count = kept;
        size_t size = own->size * lanes * planes + SLACK, begin = SLACK;
        while (place < count && list[place].begin < begin + size) {
            if (list[place].end > begin)
                begin = list[place].end;
            place++;
        }
        memmove(list + place + 1, list + place, (size_t)(count - place) * sizeof *list);
        list[place] = (live){begin, begin + size, number < p->buffers ? last[number] : INT32_MAX};
        count++;
        own->mean = begin;
        own->variance = begin + own->size * lanes;
        if (begin + size > most)
            most = begin + size;
    }
    return most;
}

static void last_uses(const pocket *m, const int *root, int *last)
{
    const program *p = &m->program;
    for (int i = 0; i < p->buffers; i++)
        last[i] = -1;
    for (int i = 0; i < p->operations; i++) {
        const operation *op = &p->list[i];
        if (last[root[op->result]] < i)
            last[root[op->result]] = i;
        for (int j = 0; j < op->operands; j++)
            if (op->x[j] >= 0)
                last[root[op->x[j]]] = i;
        for (int j = 0; j < op->many_count; j++)
            if (op->many[j] >= 0)
                last[root[op->many[j]]] = i;
    }
    for (int i = 0; i < p->places; i++)
        if (p->place[i].operand >= 0)
            last[root[p->place[i].operand]] = INT32_MAX;
    last[root[p->output]] = INT32_MAX;
}

static int make_arena(pocket *m)
{
    size_t number = (size_t)m->program.buffers + 1, scratch = 0, own = 0, largest = 0;
    int *uses = calloc(number, sizeof *uses), *root = calloc(number, sizeof *root), *last = calloc(number, sizeof *last);
    live *list = calloc(number + m->weights, sizeof *list);
    if (uses && root && last && list) {
        simplify(m, uses, root);
        last_uses(m, root, last);
        for (int i = 0; i < m->slot_count; i++)
            largest = m->slots[i].size > largest ? m->slots[i].size : largest;
        for (int i = 0; i < m->program.operations; i++) {
            const operation *op = &m->program.list[i];
            size_t a = op->first_kernel >= 0 ? linear_scratch(m, op) : 0, b = own_memory(m, op);
            scratch = a > scratch ? a : scratch;
            own = b > own ? b : own;
        }
        m->is_small = largest <= MOST_SMALL && scratch <= 6 * MOST_SMALL && own <= 8 * MOST_SMALL;
        size_t lanes = m->is_small ? ROWS : 1, size = lay_out(m, root, last, list, lanes);
        for (int i = 0; i < m->program.buffers; i++) {
            m->slots[i].mean = m->slots[root[i]].mean;
            m->slots[i].variance = m->slots[root[i]].variance;
        }
        m->scratch = size;
        m->own = size + (scratch + SLACK) * lanes;
        m->arena_size = m->own + (own + SLACK) * lanes + SLACK;
        m->arena = take(m, m->arena_size, sizeof(float));
    } else {
        snprintf(m->error, 256, "there is no memory");
    }
    free(uses), free(root), free(last), free(list);
    return m->error[0] != 0;
}

/* The kernels and weights of one member. */
static int make_member(pocket *m, member *part, uint32_t *offsets)
{
    run r = {.model = m, .member = part, .lanes = 1};
    part->kernels = take(m, (size_t)m->kernels + 1, sizeof *part->kernels);
    part->dense = take(m, (size_t)m->weights + 1, sizeof *part->dense);
    for (int i = 0; i < m->program.operations && !m->error[0]; i++) {
        const operation *op = &m->program.list[i];
        for (int j = 0; j < op->operands + op->many_count && !m->error[0]; j++) {
            int32_t x = j < op->operands ? op->x[j] : op->many[j - op->operands];
            if (x != ABSENT && x < 0 && (j >= op->operands || use_of(op, j) != 'k'))
                dense_make(&r, x);
        }
    }
    for (int i = 0; i < m->program.places && !m->error[0]; i++)
        if (m->program.place[i].operand < 0)
            dense_make(&r, m->program.place[i].operand);
    for (int i = 0; i < m->program.operations && !m->error[0]; i++) {
        operation *op = &m->program.list[i];
        const pocket_weight *w = op->first_kernel >= 0 ? &m->file->weights[part->first + (uint32_t)(-1 - op->x[1])] : NULL;
        if (w && op->row->code == 2)
            conv_offsets(m, op, offsets, w->size / (uint32_t)w->shape[0]);
        if (w)
            kernels_make(&r, op, op->row->code == 2 ? offsets : NULL);
    }
    return m->error[0] != 0;
}

static int open_model(pocket *m)
{
    size_t longest = 1;
    count_members(m);
    if (m->error[0] || check_members(m))
        return 1;
    const pocket_weight *weights = m->file->weights + m->member[0].first;
    if (!m->file->program)
        return snprintf(m->error, 256, "the file has no program: save it with an example"), 1;
    if (program_read(&m->program, m->file->program, m->file->program_size, m->error)
        || program_check(&m->program, weights, m->weights, m->error))
        return 1;
    if (make_slots(m) || make_arena(m))
        return 1;
    for (uint32_t i = 0; i < m->weights; i++) {
        longest = weights[i].size > longest ? weights[i].size : longest;
        m->is_random |= weights[i].std != NULL;
    }
    m->is_random |= m->facts.keeps_dropout;
    uint32_t *offsets = take(m, longest, sizeof *offsets);
    for (int i = 0; offsets && i < m->members; i++)
        if (make_member(m, &m->member[i], offsets))
            return 1;
    m->outputs = m->slots[m->program.output].size;
    moments_plan(m);
    return answers_plan(m);
}

pocket *pocket_open(const pocket_file *file, const pocket_facts *facts, const pocket_options *options, char *error)
{
    pocket *m = calloc(1, sizeof *m);
    if (!m)
        return snprintf(error, 256, "there is no memory"), NULL;
    m->file = file, m->facts = *facts, m->options = *options;
    if (open_model(m) || m->error[0]) {
        memcpy(error, m->error, sizeof m->error);
        pocket_close(m);
        return NULL;
    }
    return m;
}

void pocket_close(pocket *m)
{
    for (int i = 0; m && i < m->block_count; i++)
        free(m->blocks[i]);
    if (m && !m->source) {
        program_free(&m->program);
        loaded_free(m->loaded);
    }
    if (m)
        free(m->blocks);
    free(m);
}

int pocket_shape(const pocket *m, int number, int32_t *sides)
{
    const shape *s = &m->slots[number < 0 ? m->program.output : number].shape;
    for (int i = 0; i < s->rank; i++)
        sides[i] = (int32_t)s->side[i];
    return s->rank;
}

int pocket_kind(const pocket *m) { return m->kind; }
size_t pocket_memory(const pocket *m) { return m->memory; }
const char *pocket_error(const pocket *m) { return m->error; }
