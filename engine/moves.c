/* engine/moves.c: operations that move numbers about; variances go the same ways as means. */
#include "inside.h"
#include <string.h>

void walk_begin(walk *w)
{
    int kept = 0;
    for (int i = 0; i < w->rank; i++) {
        int joins = kept > 0 && w->side[i] > 0;
        for (int k = 0; joins && k < 3; k++)
            joins = w->step[k][kept - 1] == w->step[k][i] * w->side[i];
        if (!joins)
            kept++;
        w->side[kept - 1] = joins ? w->side[kept - 1] * w->side[i] : w->side[i];
        for (int k = 0; k < 3; k++)
            w->step[k][kept - 1] = w->step[k][i];
        if (kept > 1 && !joins && w->side[kept - 2] == 1) {   /* a side of 1 has any step */
            w->side[kept - 2] = w->side[kept - 1];
            for (int k = 0; k < 3; k++)
                w->step[k][kept - 2] = w->step[k][kept - 1];
            kept--;
        } else if (kept > 1 && !joins && w->side[kept - 1] == 1) {
            kept--;
        }
    }
    w->rank = kept;
    w->run = kept ? w->side[kept - 1] : 1;
    memset(w->count, 0, sizeof w->count);
}

int walk_next(walk *w)
{
    for (int i = w->rank - 2; i >= 0; i--) {
        for (int k = 0; k < 3; k++)
            w->at[k] += w->step[k][i];
        if (++w->count[i] < w->side[i])
            return 1;
        for (int k = 0; k < 3; k++)
            w->at[k] -= w->step[k][i] * w->side[i];
        w->count[i] = 0;
    }
    return 0;
}

static void side_of(walk *w, size_t side, size_t to, size_t from)
{
    w->side[w->rank] = side;
    w->step[0][w->rank] = to;
    w->step[1][w->rank] = from;
    w->step[2][w->rank++] = 0;
}

/* y[...] = x[...], each by its own steps. */
static void copy(const run *r, walk *w, float *y, const float *x)
{
    if (r->lanes > 1)
        side_of(w, r->lanes, 1, 1);
    walk_begin(w);
    size_t a = w->rank ? w->step[0][w->rank - 1] : 1, b = w->rank ? w->step[1][w->rank - 1] : 1;
    do {
        float *to = y + w->at[0];
        const float *from = x + w->at[1];
        if (a == 1 && b == 1)
            memcpy(to, from, w->run * sizeof *to);
        else
            for (size_t i = 0; i < w->run; i++)
                to[i * a] = from[i * b];
    } while (walk_next(w));
}

/* Steps of all axes of a shape, in numbers of all lanes. */
static void steps_of(const shape *s, size_t lanes, size_t *steps)
{
    for (int i = s->rank - 1; i >= 0; i--) {
        steps[i] = lanes;
        lanes *= (size_t)s->side[i];
    }
}

void mean_copy(run *r, const operation *op)
{
    memcpy(plane_of(r, op->result), plane_of(r, op->x[0]), count_at(r, op->result) * sizeof(float));
}

void mean_permute(run *r, const operation *op)
{
    const slot *x = slot_of(r, op->x[0]), *y = slot_of(r, op->result);
    size_t from[MOST_AXES], to[MOST_AXES];
    walk w = {0};
    steps_of(&x->shape, r->lanes, from);
    steps_of(&y->shape, r->lanes, to);
    for (int i = 0; i < y->shape.rank; i++)
        side_of(&w, (size_t)y->shape.side[i], to[i], from[op->l[0].at[i]]);
    copy(r, &w, plane_of(r, op->result), plane_of(r, op->x[0]));
}

void mean_slice(run *r, const operation *op)
{
    const slot *x = slot_of(r, op->x[0]), *y = slot_of(r, op->result);
    size_t from[MOST_AXES], to[MOST_AXES];
    walk w = {0};
    steps_of(&x->shape, r->lanes, from);
    steps_of(&y->shape, r->lanes, to);
    w.at[1] = (size_t)op->n[1] * from[op->n[0]];
    from[op->n[0]] *= (size_t)op->n[2];
    for (int i = 0; i < y->shape.rank; i++)
        side_of(&w, (size_t)y->shape.side[i], to[i], from[i]);
    copy(r, &w, plane_of(r, op->result), plane_of(r, op->x[0]));
}

void mean_pad(run *r, const operation *op)
{
    const slot *x = slot_of(r, op->x[0]), *y = slot_of(r, op->result);
    size_t from[MOST_AXES], to[MOST_AXES];
    walk w = {0};
    steps_of(&x->shape, r->lanes, from);
    steps_of(&y->shape, r->lanes, to);
    memset(plane_of(r, op->result), 0, count_at(r, op->result) * sizeof(float));
    w.at[0] = (size_t)op->n[1] * to[op->n[0]];
    for (int i = 0; i < x->shape.rank; i++)
        side_of(&w, (size_t)x->shape.side[i], to[i], from[i]);
    copy(r, &w, plane_of(r, op->result), plane_of(r, op->x[0]));
}

void mean_expand(run *r, const operation *op)
{
    const slot *x = slot_of(r, op->x[0]), *y = slot_of(r, op->result);
    size_t from[MOST_AXES], to[MOST_AXES];
    int more = y->shape.rank - x->shape.rank;
    walk w = {0};
    steps_of(&x->shape, r->lanes, from);
    steps_of(&y->shape, r->lanes, to);
    for (int i = 0; i < y->shape.rank; i++) {
        int same = i >= more && x->shape.side[i - more] == y->shape.side[i];
        side_of(&w, (size_t)y->shape.side[i], to[i], same ? from[i - more] : 0);
    }
    copy(r, &w, plane_of(r, op->result), plane_of(r, op->x[0]));
}

/* Each number of an axis t times: two sides, of which the second goes nowhere in x. */
void mean_upsample(run *r, const operation *op)
{
    const slot *x = slot_of(r, op->x[0]), *y = slot_of(r, op->result);
    size_t from[MOST_AXES], to[MOST_AXES];
    int kept = x->shape.rank - op->l[0].count;
    walk w = {0};
    steps_of(&x->shape, r->lanes, from);
    steps_of(&y->shape, r->lanes, to);
    for (int i = 0; i < x->shape.rank; i++) {
        size_t times = i < kept ? 1 : (size_t)op->l[0].at[i - kept];
        side_of(&w, (size_t)x->shape.side[i], to[i] * times, from[i]);
        if (times > 1)
            side_of(&w, times, to[i], 0);
    }
    copy(r, &w, plane_of(r, op->result), plane_of(r, op->x[0]));
}

void mean_concat(run *r, const operation *op)
{
    const slot *y = slot_of(r, op->result);
    size_t to[MOST_AXES], from[MOST_AXES], begin = 0;
    steps_of(&y->shape, r->lanes, to);
    for (int k = 0; k < op->many_count; k++) {
        const slot *x = slot_of(r, op->many[k]);
        const float *numbers = plane_of(r, op->many[k]), zero = 0;
        walk w = {0};
        w.at[0] = begin;
        steps_of(&x->shape, r->lanes, from);
        for (int i = 0; i < x->shape.rank; i++)
            side_of(&w, (size_t)x->shape.side[i], to[i], numbers ? from[i] : 0);
        if (numbers) {
            copy(r, &w, plane_of(r, op->result), numbers);
        } else {                          /* what is certain among what is random */
            if (r->lanes > 1)
                side_of(&w, r->lanes, 1, 0);
            walk_begin(&w);
            do
                for (size_t i = 0; i < w.run; i++)
                    plane_of(r, op->result)[w.at[0] + i * w.step[0][w.rank - 1]] = zero;
            while (walk_next(&w));
        }
        begin += (size_t)x->shape.side[op->n[0]] * to[op->n[0]];
    }
}

void mean_constant(run *r, const operation *op)
{
    float *y = mean_of(r, op->result);
    for (int i = 0; i < op->real_count; i++)
        for (size_t l = 0; l < r->lanes; l++)
            memcpy(y + (size_t)i * r->lanes + l, op->reals + 4 * i, sizeof *y);
}

/* Rows of a table; an index that is none of them ends the pass. */
void mean_embedding(run *r, const operation *op)
{
    const float *x = mean_of(r, op->x[0]);
    const float *table = weight_of(r, op->x[1], r->plane == VARIANCE ? VARIANCE : r->drawn ? DRAWN : MEAN);
    const pocket_weight *w = &r->model->file->weights[r->member->first + (uint32_t)(-1 - op->x[1])];
    size_t wide = (size_t)w->shape[1], lanes = r->lanes;
    float *y = plane_of(r, op->result);
    for (size_t i = 0; i < slot_of(r, op->x[0])->size; i++)
        for (size_t l = 0; l < lanes; l++) {
            float index = x[i * lanes + l];
            if (!(index > -1 && index < (float)w->shape[0])) {
                r->failed = 1;
                return;
            }
            for (size_t k = 0; k < wide; k++)
                y[(i * wide + k) * lanes + l] = table[(size_t)index * wide + k];
        }
}
