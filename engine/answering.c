/* engine/answering.c: from inputs to draws of outputs, all at once or in parts for threads. */
#include "inside.h"
#include <math.h>
#include <stdio.h>

#ifdef __wasm__
#define PART static                      /* there are no threads, and the page is small */
#else
#define PART
#endif

/* Outputs of some rows into a draw, one number of all lanes after the other into rows. */
static void keep(const run *r, size_t rows, const float *from, float *to)
{
    size_t n = r->model->outputs;
    for (size_t l = 0; l < r->lanes && l < rows; l++)
        for (size_t i = 0; i < n; i++)
            to[l * n + i] = from[i * r->lanes + l];
}

/* Draw s of m + sqrt(v) z, for the rows that a pass had; without a variance the mean alone. */
static void keep_gaussian(const run *r, const pocket_ask *ask, size_t rows, size_t row, int first, int draws)
{
    const pocket *m = r->model;
    size_t n = m->outputs;
    const float *mean = mean_of(r, m->program.output), *variance = variance_of(r, m->program.output), *z = ask->normals;
    float *spread = m->draws + (size_t)draws * ROWS * n * (size_t)m->members, factor = m->facts.moments_factor;
    size_t width = output_width(m);
    if (ask->estimator == POCKET_ONE_PASS) {
        head_spread(r, spread, spread + ROWS * n);
        mean = spread, variance = spread + ROWS * n, factor = 1;
    }
    factor = factor > 0 ? factor : 1;
    z = z ? z : m->normals;
    for (size_t l = 0; l < r->lanes && l < rows; l++)
        for (size_t i = 0; i < n; i++) {
            float from = mean[i * r->lanes + l], std = variance ? sqrtf(variance[i * r->lanes + l] * factor) : 0;
            float *to = r->to + (size_t)first * r->step + (row + l) * n + i;
            for (int s = 0; s < draws; s++, to += r->step)
                *to = from + std * z[(size_t)s * width + i / (n / width)];
        }
}

/* One network for all rows of a block, many at once where buffers are small. */
static void forward(run *r, const float *const *inputs, const pocket_ask *ask, size_t first, size_t rows, int draw, int draws)
{
    const pocket *m = r->model;
    size_t n = m->outputs;
    for (size_t row = 0; row < rows && !r->failed; row += r->lanes) {
        r->lanes = m->is_small && rows - row > 2 ? ROWS : 1;
        r->first_row = first + row;
        pass(r, inputs, rows - row);
        if (ask->estimator == POCKET_ONE_PASS || ask->estimator == POCKET_MOMENTS)
            keep_gaussian(r, ask, rows - row, row, draw, draws);
        else
            keep(r, rows - row, mean_of(r, m->program.output), r->to + (size_t)draw * r->step + row * n);
    }
}

static int is_gaussian(const pocket_ask *ask)
{
    return ask->estimator == POCKET_ONE_PASS || ask->estimator == POCKET_MOMENTS;
}

/* Draws from one on, `apart` rows from one to the next: those of the first member come first. */
static int draw_some(pocket *m, const float *const *inputs, const pocket_ask *ask, size_t first, size_t rows, int each,
                     int from, int count, float *to, size_t apart)
{
    int is_whole = ask->estimator == POCKET_WEIGHT;
    run r = {.model = m, .lanes = 1, .moments = ask->estimator == POCKET_MOMENTS, .drawn = is_whole, .seed = ask->seed,
             .to = to, .step = apart * m->outputs};
    for (int i = 0; i < count && !r.failed; i += is_whole ? 1 : each) {
        r.member = &m->member[(from + i) / each];
        r.draw = (from + i) % each;
        if (is_whole)
            weights_draw(&r);
        forward(&r, inputs, ask, first, rows, i, is_whole ? 1 : each);
    }
    return r.failed && snprintf(m->error, 256, "an index is not among the rows of an embedding");
}

static int draws_each(const pocket *m, const pocket_ask *ask)
{
    int is_one = ask->estimator == POCKET_MEAN || (!m->is_random && ask->estimator != POCKET_ONE_PASS);
    return is_one ? 1 : (ask->draws + m->members - 1) / m->members;
}

static const char *refused(const pocket *m, const pocket_ask *ask, const pocket_answer *a)
{
    if (ask->estimator == POCKET_MOMENTS && (m->no_moments[0] || !m->options.moments))
        return m->no_moments[0] ? m->no_moments : "the model was not opened for moments";
    if (ask->estimator == POCKET_ONE_PASS && (!m->has_head || m->members > 1))
        return "the model has no one-pass head: pb.distill_ teaches one";
    if ((ask->estimator != POCKET_MEAN && (ask->draws < 1 || ask->draws > m->options.most_draws))
        || (ask->estimator == POCKET_WEIGHT && m->no_whole_draws))
        return "the model was not opened for as many draws, or none were asked for";
    if (a && (a->lower || a->upper) && !(ask->level > 0 && ask->level < 1))
        return "the level of an interval must be between 0 and 1";
    return NULL;
}

static int not_finite(pocket *m, int row)
{
    return snprintf(m->error, 256, "the answer to row %d is not finite (rows count from 0): inputs are too "
                    "large, or not prepared as in training", row);
}

static int check(pocket *m, const float *const *inputs, int rows, int first, int count, const pocket_ask *ask,
                 const pocket_answer *a)
{
    const char *wrong = rows < 1 || count < 1 ? "there is nothing to predict" : refused(m, ask, a);
    for (int k = 0; !wrong && k < m->program.inputs; k++)
        for (size_t i = m->slots[k].size * (size_t)first; i < m->slots[k].size * (size_t)(first + count); i++)
            if (!isfinite(inputs[k][i]))
                wrong = "an input is NaN or infinite";
    m->error[0] = 0;
    return wrong && snprintf(m->error, 256, "%s", wrong);
}

/* Of so many rows or draws; `check` refuses none at all. */
static int cut_wrongly(pocket *m, int of, int first, int count, int together)
{
    int wrong = of > 0 && count > 0 && (first < 0 || count > of - first || first % together);
    return wrong && snprintf(m->error, 256, "there is no such part");
}

PART int pocket_rows(pocket *m, const float *const *inputs, int rows, int first, int count, const pocket_ask *ask,
                const pocket_answer *a)
{
    int each = draws_each(m, ask), last = first + count;
    if (cut_wrongly(m, rows, first, count, m->is_small ? ROWS : 1) || check(m, inputs, rows, first, count, ask, a))
        return 1;
    if (is_gaussian(ask) && !ask->normals && m->normals_made != each) {
        spread_normals(m->normals, each, (int)output_width(m), m->work);
        m->normals_made = each;
    }
    for (; first < last; first += ROWS) {
        int block = last - first < ROWS ? last - first : ROWS;
        if (draw_some(m, inputs, ask, (size_t)first, (size_t)block, each, 0, each * m->members, m->draws, ROWS))
            return 1;
        for (int row = 0; row < block; row++) {
            told d = {m->draws + (size_t)row * m->outputs, ROWS * m->outputs, each * m->members, m->members == 1 && is_gaussian(ask)};
            if (!tell(m, d, (size_t)(first + row), (size_t)rows, ask, a))
                return not_finite(m, first + row);
        }
    }
    return 0;
}

int pocket_predict(pocket *m, const float *const *inputs, int rows, const pocket_ask *ask, const pocket_answer *a)
{
    return pocket_rows(m, inputs, rows, 0, rows, ask, a);
}

#ifndef __wasm__
int pocket_draws(pocket *m, const float *const *inputs, int rows, int first, int count, const pocket_ask *ask, float *samples)
{
    int each = draws_each(m, ask);
    float *to = samples + (size_t)first * (size_t)rows * m->outputs;
    return check(m, inputs, rows, 0, rows, ask, NULL) || cut_wrongly(m, each * m->members, first, count, 1)
        || draw_some(m, inputs, ask, 0, (size_t)rows, each, first, count, to, (size_t)rows);
}

int pocket_tell(pocket *m, const float *samples, int rows, const pocket_ask *ask, const pocket_answer *a)
{
    const char *wrong = refused(m, ask, a);
    if (wrong)
        return snprintf(m->error, 256, "%s", wrong);
    for (int row = 0; row < rows; row++) {
        told d = {samples + (size_t)row * m->outputs, (size_t)rows * m->outputs, draws_each(m, ask) * m->members, 0};
        if (!tell(m, d, (size_t)row, (size_t)rows, ask, a))
            return not_finite(m, row);
    }
    return 0;
}

int pocket_number(const pocket *m, const pocket_ask *ask) { return draws_each(m, ask) * m->members; }
int pocket_together(const pocket *m) { return m->is_small ? ROWS : 1; }
#endif
