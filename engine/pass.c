/* engine/pass.c: inputs of up to R rows through all operations of one member. */
#include "inside.h"
#include <string.h>

/* A weight that stands where buffers may: the same for all lanes. */
static void spread_weight(const run *r, int32_t operand)
{
    const slot *s = slot_of(r, operand);
    for (int p = 0; p < (r->moments && s->is_random ? 2 : 1); p++) {
        const float *from = weight_of(r, operand, p ? VARIANCE : r->drawn ? DRAWN : MEAN);
        float *to = r->model->arena + (p ? s->variance : s->mean);
        for (size_t i = 0; i < s->size; i++)
            for (size_t l = 0; l < r->lanes; l++)
                to[i * r->lanes + l] = from[i];
    }
}

static void enter_inputs(const run *r, const float *const *inputs, size_t rows)
{
    for (int k = 0; k < r->model->program.inputs; k++) {
        const slot *s = slot_of(r, k);
        float *to = mean_of(r, k);
        for (size_t l = 0; l < r->lanes; l++) {
            const float *x = inputs[k] + (r->first_row + (l < rows ? l : 0)) * s->size;
            for (size_t i = 0; i < s->size; i++)
                to[i * r->lanes + l] = x[i];
        }
        if (variance_of(r, k))
            memset(variance_of(r, k), 0, s->size * r->lanes * sizeof *to);
    }
}

void pass(run *r, const float *const *inputs, size_t rows)
{
    const pocket *m = r->model;
    enter_inputs(r, inputs, rows);
    for (uint32_t w = 0; w < m->weights; w++)
        if (m->weight_slot[w] >= 0)
            spread_weight(r, -1 - (int32_t)w);
    for (int i = 0; i < m->program.operations && !r->failed; i++) {
        const operation *op = &m->program.list[i];
        int is_random = r->moments && m->slots[op->result].is_random;
        if (op->skipped)
            continue;
        if (is_random && op->row->moments) {
            op->row->moments(r, op);
            continue;
        }
        op->row->mean(r, op);
        if (is_random) {                   /* what moves means moves variances */
            r->plane = VARIANCE;
            op->row->mean(r, op);
            r->plane = MEAN;
        }
    }
}
