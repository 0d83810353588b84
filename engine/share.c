/* engine/share.c: places for threads to work with one open model, and how much work it is. */
#include "inside.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for what draws of weights write; all else is read where it lies. */
static void share_kernel(pocket *m, const member *part, kernel *k)
{
    const pocket_weight *w = &m->file->weights[part->first + (uint32_t)(-1 - k->weight)];
    size_t rows = (size_t)w->shape[0], blocks = (size_t)((k->outputs + PACK - 1) / PACK * k->groups);
    size_t numbers = k->is_sparse ? k->start[rows * (size_t)k->parts] : blocks * PACK * (size_t)k->depth;
    if (!k->is_random)
        return;
    if (k->values[DRAWN] != k->values[MEAN])
        k->values[DRAWN] = take(m, numbers + SLACK, sizeof(float));
    k->shift[DRAWN] = take(m, rows, sizeof(float));
}

static void share_member(pocket *m, member *part)
{
    const kernel *kernels = part->kernels;
    const dense *weights = part->dense;
    part->kernels = take(m, (size_t)m->kernels + 1, sizeof *kernels);
    part->dense = take(m, (size_t)m->weights + 1, sizeof *weights);
    if (m->error[0])
        return;
    memcpy(part->kernels, kernels, (size_t)m->kernels * sizeof *kernels);
    memcpy(part->dense, weights, (size_t)m->weights * sizeof *weights);
    for (int i = 0; i < m->kernels; i++)
        share_kernel(m, part, &part->kernels[i]);
    for (uint32_t i = 0; i < m->weights; i++)
        if (part->dense[i].owned[DRAWN])
            part->dense[i].plane[DRAWN] = part->dense[i].owned[DRAWN]
                = take(m, m->file->weights[part->first + i].size, sizeof(float));
}

pocket *pocket_share(const pocket *model, int most_draws, int whole, char *error)
{
    pocket *m = calloc(1, sizeof *m);
    if (!m)
        return snprintf(error, 256, "there is no memory"), NULL;
    memcpy(m, model, offsetof(pocket, normals_made));
    m->blocks = NULL, m->block_count = m->block_room = 0, m->memory = 0;
    m->source = model;
    m->options.most_draws = most_draws;
    m->no_whole_draws = !whole || !model->options.most_draws;
    m->arena = take(m, m->arena_size, sizeof(float));
    answers_room(m);
    if (m->has_head)
        head_room(m);
    if (!m->no_whole_draws) {
        m->member = take(m, (size_t)m->members, sizeof *m->member);
        for (int i = 0; m->member && i < m->members; i++) {
            m->member[i] = model->member[i];
            share_member(m, &m->member[i]);
        }
    }
    if (m->error[0]) {
        memcpy(error, m->error, sizeof m->error);
        pocket_close(m);
        return NULL;
    }
    return m;
}

/* Weights that are there, at each of their positions; of one member, times members. */
double pocket_work(const pocket *m)
{
    double total = 0;
    for (int i = 0; i < m->program.operations; i++) {
        const operation *op = &m->program.list[i];
        for (int j = 0; op->first_kernel >= 0 && j < (op->row->code <= 2 ? 1 : 2); j++) {
            const kernel *k = &m->member->kernels[op->first_kernel + j];
            double rows = (double)k->outputs * k->groups;
            const slot *x = &m->slots[op->x[0] >= 0 ? op->x[0] : m->weight_slot[-1 - op->x[0]]];
            double positions = op->row->code == 2 ? (double)m->slots[op->result].size / rows : (double)x->size / k->depth;
            total += positions * (k->is_sparse ? (double)k->start[k->outputs * k->groups * k->parts] : rows * k->depth);
        }
        total += (double)m->slots[op->result].size;
    }
    return total * m->members;
}
