/* engine/positions.c: which buffers are random when moments are carried, and along which of their axes
   noise is common: numbers are fully correlated there, and independent else. */
#include "inside.h"
#include <stdio.h>

static slot *at(const pocket *m, int32_t operand)
{
    return &m->slots[operand >= 0 ? operand : m->weight_slot[-1 - operand]];
}

static int is_random_weight(const pocket *m, int32_t operand)
{
    return operand != ABSENT && operand < 0 && m->file->weights[m->member[0].first + (uint32_t)(-1 - operand)].std;
}

static int any_random(const pocket *m, const operation *op)
{
    const char *letter = op->row->fields;
    for (int i = 0; i < op->operands; i++, letter++) {
        while (*letter != 'x' && *letter != 'y' && *letter != 'w' && *letter != 'v')
            letter++;
        if (op->x[i] == ABSENT)
            continue;
        if (*letter == 'x' || *letter == 'y' ? at(m, op->x[i])->is_random : is_random_weight(m, op->x[i]))
            return 1;
    }
    for (int i = 0; i < op->many_count; i++)
        if (at(m, op->many[i])->is_random)
            return 1;
    return 0;
}

/* As of what they are broadcast to: axes are counted from the last. */
static unsigned aligned(const slot *x, int rank)
{
    return x->is_random ? x->common << (rank - x->shape.rank) : 0;
}

/* After a reshape an axis is as all those that it was made from. */
static unsigned regrouped(const slot *x, const shape *y)
{
    unsigned found = 0;
    const shape *s = &x->shape;
    for (int i = 0, j = 0; j < y->rank;) {
        int64_t a = i < s->rank ? s->side[i] : 1, b = y->side[j];
        int first = i++, k = j + 1, used = 0, common = 1;
        while (a != b) {
            if (a < b && i < s->rank)
                a *= s->side[i++];
            else if (k < y->rank)
                b *= y->side[k++];
            else
                break;
        }
        for (int c = first; c < i && c < s->rank; c++)
            if (s->side[c] != 1)
                used = 1, common = common && (x->common >> c & 1);
        for (; j < k; j++)
            found |= (unsigned)(used && common) << j;
    }
    return found;
}

static unsigned after(const pocket *m, const operation *op, const slot *x, const slot *y)
{
    unsigned found = 0, all = (1u << y->shape.rank) - 1;
    int more = x ? y->shape.rank - x->shape.rank : 0, code = op->row->code, kept = 0;
    switch (code) {
    case 1: case 2:
        found = x->is_random ? x->common : 0;
        if (is_random_weight(m, op->x[1]) || is_random_weight(m, op->x[2]))
            found |= is_common(m, op) ? all : 0;
        return found & ~(code == 1 ? 1u << (y->shape.rank - 1) : 1u);
    case 6: case 32: return 0;
    case 7: case 8:
        for (int i = 1; i < 5; i++)
            found |= (unsigned)is_random_weight(m, op->x[i]);
        return found;
    case 9: return at(m, op->x[2])->common;
    case 10: case 11: case 12: case 13: case 14: case 15: case 16:
        return aligned(x, y->shape.rank) | aligned(at(m, op->x[1]), y->shape.rank);
    case 18:
        for (int i = 0; i < op->many_count; i++)
            found |= at(m, op->many[i])->is_random ? at(m, op->many[i])->common : 0;
        return found;
    case 19: return regrouped(x, &y->shape);
    case 20:
        for (int i = 0; i < y->shape.rank; i++)
            found |= (x->common >> op->l[0].at[i] & 1) << i;
        return found;
    case 21: return y->shape.side[op->n[0]] == 1 ? x->common & ~(1u << op->n[0]) : x->common;
    case 23:
        for (int i = 0; i < y->shape.rank && x->common; i++) {
            int again = i < more || x->shape.side[i - more] != y->shape.side[i];
            found |= (unsigned)(y->shape.side[i] != 1 && (again || (x->common >> (i - more) & 1))) << i;
        }
        return found;
    case 27: case 28: case 29:
        for (int i = 0, next = 0; i < x->shape.rank; i++) {
            int gone = next < op->l[0].count && op->l[0].at[next] == i;
            next += gone;
            found |= (unsigned)(!gone && (x->common >> i & 1)) << kept;
            kept += !gone || op->n[0];
        }
        return found;
    default: return x->common;
    }
}

void moments_plan(pocket *m)
{
    const program *p = &m->program;
    for (int i = 0; i < p->inputs; i++)
        m->slots[i].is_random = m->facts.keeps_dropout && !p->whole[i];
    for (int i = 0; i < p->operations; i++) {
        const operation *op = &p->list[i];
        slot *y = &m->slots[op->result];
        int code = op->row->code;
        const slot *x = op->operands ? at(m, op->x[0]) : NULL;
        y->is_random = code == 9 ? at(m, op->x[2])->is_random : any_random(m, op) || (code == 33 && m->facts.keeps_dropout);
        y->common = y->is_random ? after(m, op, x, y) : 0;
        if (code == 10 && op->x[0] == op->x[1] && y->is_random && !m->no_moments[0])
            snprintf(m->no_moments, sizeof m->no_moments,
                     "moments have no rule for operation %d (matmul) of a random matrix and itself", i);
        if (code == 6 && x->is_random)
            snprintf(m->no_moments, sizeof m->no_moments,
                     "moments have no rule for operation %d (embedding) of a random index", i);
    }
}
