/* engine/program.c: bytes to operations; every number is checked before anything is made of it. */
#include "program.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1, LONGEST = 1 << 16, MOST_INPUTS = 16, MOST_OPERATIONS = 1 << 14, MOST_ITEMS = 1 << 10 };
static const int64_t MOST_NUMBERS = (int64_t)1 << 26, MOST_IN_ALL = (int64_t)1 << 31, MOST_WORK = (int64_t)1 << 42;

typedef struct reader {
    const uint8_t *at, *end;
    int buffers;                         /* known so far */
    int32_t *pool;
    char *error;
    int failed;
} reader;

static int64_t fail(reader *r, const char *what)
{
    if (!r->failed)
        snprintf(r->error, 256, "the program: %s", what);
    r->failed = 1;
    r->at = r->end;
    return 0;
}

static int failed(reader *r, const char *what)
{
    fail(r, what);
    return 1;
}

static int byte_of(reader *r)
{
    return r->at < r->end ? *r->at++ : (int)fail(r, "it is cut short");
}

/* 7 bits a byte, lowest first, the top bit set on all but the last. */
static int64_t integer(reader *r)
{
    int64_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        int byte = byte_of(r);
        value |= (int64_t)(byte & 127) << shift;
        if (byte < 128) {
            if (byte == 0 && shift > 0)
                return fail(r, "an integer takes more bytes than it needs");
            return value <= INT32_MAX ? value : fail(r, "an integer has more than 31 bits");
        }
    }
    return fail(r, "an integer has more than 31 bits");
}

static int count_of(reader *r, int least, int most, const char *what)
{
    int64_t number = integer(r);
    return number >= least && number <= most ? (int)number : (int)fail(r, what);
}

static int list(reader *r, int32_t *out)
{
    int count = count_of(r, 0, MOST_AXES, "too many integers of a list");
    for (int i = 0; i < count; i++)
        out[i] = (int32_t)integer(r);
    return count;
}

static const uint8_t *reals(reader *r, int count)
{
    const uint8_t *first = r->at;
    if (r->end - r->at < 4 * (ptrdiff_t)count) {
        fail(r, "it is cut short");
        return first;
    }
    for (int i = 0; i < count; i++) {
        float value;
        memcpy(&value, first + 4 * i, 4);
        if (!isfinite(value))
            fail(r, "a number is not finite");
    }
    if (!r->failed)
        r->at += 4 * count;
    return first;
}

static float real(reader *r)
{
    float value = 0;
    const uint8_t *bytes = reals(r, 1);
    if (!r->failed)
        memcpy(&value, bytes, 4);
    return value;
}

static int32_t operand(reader *r, int may_be_absent)
{
    int64_t value = integer(r);
    if (value == 0) {
        if (!may_be_absent)
            fail(r, "an operand is missing");
        return ABSENT;
    }
    if (value % 2)
        return (int32_t)(-1 - value / 2);
    if (value / 2 > r->buffers)
        return (int32_t)fail(r, "an operand is a buffer that is not there yet");
    return (int32_t)(r->buffers - value / 2);
}

static int32_t weight(reader *r, int may_be_absent)
{
    int32_t found = operand(r, may_be_absent);
    return found < 0 ? found : (int32_t)fail(r, "an operand is a buffer that must be a weight");
}

static void field(reader *r, operation *op, char letter, int *used)
{
    int *n = &used[0], *l = &used[1], *f = &used[2];
    switch (letter) {
    case 'n': op->n[(*n)++] = (int32_t)integer(r); break;
    case 'l': op->l[*l].count = list(r, op->l[*l].at); (*l)++; break;
    case 'r': op->r[(*f)++] = real(r); break;
    case 'R':
        op->real_count = count_of(r, 0, MOST_ITEMS, "too many numbers");
        op->reals = reals(r, op->real_count);
        break;
    case 'X':
        op->many_count = count_of(r, 1, MOST_ITEMS, "none or too many operands");
        op->many = r->pool;
        for (int i = 0; i < op->many_count && !r->failed; i++)
            *r->pool++ = operand(r, 0);
        break;
    case 'x': op->x[op->operands++] = operand(r, 0); break;
    case 'y': op->x[op->operands++] = operand(r, 1); break;
    case 'w': op->x[op->operands++] = weight(r, 0); break;
    default: op->x[op->operands++] = weight(r, 1); break;
    }
}

static void read_operation(reader *r, operation *op, int result)
{
    int code = (int)integer(r), used[3] = {0, 0, 0};
    memset(op, 0, sizeof *op);
    op->result = result;
    op->norm = op->first_kernel = -1;
    for (int i = 0; i < TABLE_ROWS; i++)
        if (TABLE[i].code == code)
            op->row = &TABLE[i];
    if (!op->row && !r->failed) {
        char text[80];
        snprintf(text, sizeof text, "operation %d is none that this engine knows", code);
        fail(r, text);
    }
    for (const char *letter = op->row ? op->row->fields : ""; *letter && !r->failed; letter++)
        field(r, op, *letter, used);
}

int program_read(program *p, const uint8_t *bytes, size_t size, char *error)
{
    reader r = {bytes, bytes + size, 0, NULL, error, 0};
    memset(p, 0, sizeof *p);
    if (size > LONGEST)
        return failed(&r, "it has too many bytes");
    if (byte_of(&r) != VERSION)
        return failed(&r, "it has a version that this engine does not read");
    p->inputs = r.buffers = count_of(&r, 1, MOST_INPUTS, "none or too many inputs");
    p->shapes = calloc(MOST_INPUTS + MOST_OPERATIONS, sizeof *p->shapes);
    p->pool = r.pool = calloc(size + 1, sizeof *p->pool);
    if (!p->shapes || !p->pool)
        return failed(&r, "there is no memory");
    for (int i = 0; i < p->inputs; i++) {
        int32_t sides[MOST_AXES];
        p->whole[i] = count_of(&r, 0, 1, "the kind of an input is none of 0 and 1");
        p->shapes[i].rank = list(&r, sides);
        for (int a = 0; a < p->shapes[i].rank; a++)
            p->shapes[i].side[a] = sides[a];
    }
    p->operations = count_of(&r, 0, MOST_OPERATIONS, "too many operations");
    p->list = calloc((size_t)p->operations + 1, sizeof *p->list);
    if (!p->list)
        return failed(&r, "there is no memory");
    for (int i = 0; i < p->operations && !r.failed; i++, r.buffers++)
        read_operation(&r, &p->list[i], p->inputs + i);
    p->buffers = p->inputs + p->operations;
    p->output = operand(&r, 0);
    if (p->output < 0)
        fail(&r, "its output is no buffer");
    p->places = count_of(&r, 0, MOST_OPERATIONS, "too many places");
    p->place = calloc((size_t)p->places + 1, sizeof *p->place);
    if (!p->place)
        return failed(&r, "there is no memory");
    for (int i = 0; i < p->places && !r.failed; i++) {
        p->place[i].operand = operand(&r, 0);
        p->place[i].channels = count_of(&r, 0, 1, "the channels of a place are none of 0 and 1");
    }
    if (r.at != r.end)
        fail(&r, "something follows behind it");
    return r.failed;
}

void program_free(program *p)
{
    free(p->shapes);
    free(p->list);
    free(p->place);
    free(p->pool);
    memset(p, 0, sizeof *p);
}

const shape *shape_at(const checker *c, int32_t operand)
{
    if (operand == ABSENT)
        return NULL;
    return operand >= 0 ? &c->program->shapes[operand] : &c->weight_shapes[-1 - operand];
}

static const char *unbounded(const shape *s)
{
    for (int i = 0; i < s->rank && i < MOST_AXES; i++)
        if (s->side[i] == 0)
            return "a shape has an axis of size 0";
    if (s->rank > MOST_AXES)
        return "a shape has too many axes";
    return numbers_of(s) > MOST_NUMBERS ? "a buffer would have too many numbers" : NULL;
}

static const char *missing(const checker *c, const operation *op)
{
    for (int i = 0; i < op->operands + op->many_count; i++) {
        int32_t x = i < op->operands ? op->x[i] : op->many[i - op->operands];
        if (x != ABSENT && x < 0 && (uint32_t)(-1 - x) >= c->count)
            return "there is no such weight in the file";
    }
    return NULL;
}

static int check_all(program *p, const checker *c, char *error)
{
    int64_t numbers = 0, work = 0;
    for (int i = 0; i < p->inputs; i++) {
        const char *wrong = unbounded(&p->shapes[i]);
        if (wrong)
            return snprintf(error, 256, "input %d: %s", i, wrong), 1;
        numbers += numbers_of(&p->shapes[i]);
    }
    for (int i = 0; i < p->operations; i++) {
        operation *op = &p->list[i];
        shape *out = &p->shapes[op->result];
        const char *wrong = missing(c, op);
        if (!wrong)
            wrong = op->row->fit(c, op, out);
        if (!wrong)
            wrong = unbounded(out);
        if (!wrong) {
            int64_t size = numbers_of(out), each = products_of(c, op, out);
            numbers += size;
            work += each > MOST_WORK / size ? MOST_WORK + 1 : size * each;
            if (numbers > MOST_IN_ALL || work > MOST_WORK)
                wrong = "the program takes more memory or work than is allowed";
        }
        if (wrong)
            return snprintf(error, 256, "operation %d (%s): %s", i, op->row->name, wrong), 1;
    }
    for (int i = 0; i < p->places; i++) {
        int32_t x = p->place[i].operand;
        if ((x < 0 && (uint32_t)(-1 - x) >= c->count) || shape_at(c, x)->rank == 0)
            return snprintf(error, 256, "a place has no axis of channels"), 1;
    }
    return 0;
}

int program_check(program *p, const pocket_weight *weights, uint32_t count, char *error)
{
    shape *shapes = calloc((size_t)count + 1, sizeof *shapes);
    checker c = {p, weights, shapes, count};
    if (!shapes)
        return snprintf(error, 256, "there is no memory"), 1;
    for (uint32_t i = 0; i < count; i++) {
        shapes[i].rank = weights[i].rank;
        for (int a = 0; a < weights[i].rank && a < MOST_AXES; a++)
            shapes[i].side[a] = weights[i].shape[a];
    }
    int failed = check_all(p, &c, error);
    free(shapes);
    return failed;
}

int pocket_check(const uint8_t *bytes, size_t size, const pocket_weight *weights, uint32_t count, char *error)
{
    program p;
    int failed = program_read(&p, bytes, size, error) || program_check(&p, weights, count, error);
    program_free(&p);
    return failed;
}
