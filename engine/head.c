/* engine/head.c: how draws are spread, told from one pass (pocketbayes.layers.spread has the formula). */
#include "inside.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const pocket_weight *named(const pocket *m, const char *name, const char *end, int32_t *number)
{
    for (uint32_t i = 0; name && i < m->file->count; i++) {
        size_t length = strlen(name);
        const char *own = m->file->weights[i].name;
        if (!strncmp(own, name, length) && !strcmp(own + length, end)) {
            if (number)
                *number = (int32_t)i;
            return &m->file->weights[i];
        }
    }
    return NULL;
}

/* The numbers as they are stored: rows of int8 with a scale each. */
typedef struct stored { const float *center, *code, *inner, *inner_scale, *inner_bias, *outer, *outer_scale, *outer_bias, *slope; } stored;

static int find_all(pocket *m, stored *s)
{
    static const char *const names[] = {"center", "log_scale", "inner_rows", "inner_scale", "inner_bias",
                                        "outer_rows", "outer_scale", "outer_bias", "slope"};
    const float **to[] = {&s->center, &s->code, &s->inner, &s->inner_scale, &s->inner_bias,
                          &s->outer, &s->outer_scale, &s->outer_bias, &s->slope};
    head *h = &m->head;
    h->places = m->program.places;
    for (int i = 0; i < 9; i++) {
        const pocket_weight *w = named(m, "one_pass_", names[i], NULL);
        if (!w || w->index || w->rank < 1)
            return snprintf(m->error, 256, "the one-pass head lacks %s", names[i]), 1;
        *to[i] = w->mean;
        if (i == 0)
            h->features = w->shape[0];
        if (i == 2)
            h->hidden = w->shape[0];
        if (i == 8)
            h->outputs = w->shape[0];
        int32_t known = h->hidden + 2 * h->places + 2, answers = (int32_t)w->shape[0];
        uint32_t size[] = {(uint32_t)h->features, (uint32_t)h->features, (uint32_t)h->hidden * (uint32_t)h->features,
                           (uint32_t)h->hidden, (uint32_t)h->hidden, (uint32_t)answers * (uint32_t)known, w->size, w->size, w->size};
        if (w->size != size[i])
            return snprintf(m->error, 256, "the one-pass head's %s has another shape", names[i]), 1;
    }
    const pocket_weight *rows = named(m, "one_pass_", "outer_rows", NULL), *bias = named(m, "one_pass_", "outer_bias", NULL);
    const pocket_weight *scale = named(m, "one_pass_", "outer_scale", NULL);
    int32_t wanted = 2 * h->outputs + 1;
    if (rows->shape[0] != wanted || bias->shape[0] != wanted || scale->shape[0] != wanted)
        return snprintf(m->error, 256, "the one-pass head's outer rows have another shape"), 1;
    return 0;
}

static int channels_at(const pocket *m, int place, size_t *positions)
{
    const struct place *p = &m->program.place[place];
    const slot *s = &m->slots[p->operand >= 0 ? p->operand : m->weight_slot[-1 - p->operand]];
    int found = (int)s->shape.side[p->channels ? s->shape.rank - 1 : 0];
    *positions = s->size / (size_t)found;
    return found;
}

/* With w_i = scale_i^2 / (varying features of its place) distances are 1 + sum w_i c_i^2
   - sum 2 w_i c_i x_i + sum w_i x_i^2; so features need not be centred and scaled. */
static void fold_place(head *h, const stored *s, const float *scale, const float *counts, int place, int begin, int end,
                       const float *gone)
{
    float varying = 0, counted = gone ? gone[0] : 0, constant = 1;
    for (int f = begin; f < end; f++)
        varying += scale[f] > 0, counted += counts[f];
    counted = counted > 1 ? counted : 1;
    for (int f = begin; f < end; f++) {
        float w = scale[f] > 0 ? scale[f] * scale[f] / varying : 0;
        h->squares[place * h->features + f] = w;
        h->linear[(h->hidden + place) * h->features + f] = -2 * w * s->center[f];
        constant += w * s->center[f] * s->center[f];
        if (place < h->places)
            h->squares[(h->places + 1 + place) * h->features + f] = counts[f] / counted;
    }
    h->bias[h->hidden + place] = constant;
    if (place < h->places)
        h->bias[h->hidden + h->places + 1 + place] = gone ? gone[1] / counted : 0;
}

static void fold_rows(head *h, const stored *s, const float *scale)
{
    int known = h->hidden + 2 * h->places + 2;
    for (int i = 0; i < h->hidden; i++) {
        h->bias[i] = s->inner_bias[i];
        for (int f = 0; f < h->features; f++) {
            float w = s->inner[i * h->features + f] * s->inner_scale[i] * scale[f];
            h->linear[i * h->features + f] = w;
            h->bias[i] -= w * s->center[f];
        }
    }
    for (int i = 0; i < 2 * h->outputs + 1; i++)
        for (int k = 0; k < known; k++)
            h->outer[i * known + k] = s->outer[i * known + k] * s->outer_scale[i];
    for (int k = 0; k < h->outputs; k++) {
        float own = scale[h->features - h->outputs + k];
        h->unit[k] = own > 0 ? 1 / own : 1;
    }
}

void head_room(pocket *m)
{
    const head *h = &m->head;
    size_t rows = (size_t)(h->hidden + 2 * h->places + 1);
    m->row = take(m, 2 * (size_t)h->features + 2 * rows + 3 * (size_t)h->outputs + 8, sizeof(float));
}

int head_plan(pocket *m)
{
    head *h = &m->head;
    stored s;
    size_t ignored;
    int begin = 0;
    if (m->program.places == 0)
        return 0;
    if (find_all(m, &s))
        return 1;
    for (int i = 0; i < h->places; i++)
        begin += channels_at(m, i, &ignored);
    const shape *out = &m->slots[m->program.output].shape;
    if (begin + h->outputs != h->features || h->outputs != (out->rank ? out->side[0] : 1))
        return snprintf(m->error, 256, "the one-pass head does not fit its places"), 1;
    size_t features = (size_t)h->features, rows = (size_t)(h->hidden + 2 * h->places + 1);
    float *scale = take(m, features, sizeof *scale), *counts = take(m, features, sizeof *counts);
    h->linear = take(m, rows * features, sizeof(float));
    h->bias = take(m, rows, sizeof(float));
    h->squares = take(m, (rows - (size_t)h->hidden) * features, sizeof(float));
    h->outer = take(m, (size_t)(2 * h->outputs + 1) * (rows + 1), sizeof(float));
    h->unit = take(m, (size_t)h->outputs, sizeof(float));
    head_room(m);
    if (m->error[0])
        return 1;
    for (size_t f = 0; f < features; f++) {
        int unread = s.code[f] == -127 && m->facts.gone;
        counts[f] = !unread;
        scale[f] = unread || s.code[f] == -128 ? 0 : exp2f(s.code[f] / 8);
    }
    begin = 0;
    for (int i = 0; i <= h->places; i++) {
        int end = i < h->places ? begin + channels_at(m, i, &ignored) : h->features;
        fold_place(h, &s, scale, counts, i, begin, end, m->facts.gone && i < h->places ? m->facts.gone + 2 * i : NULL);
        begin = end;
    }
    fold_rows(h, &s, scale);
    h->outer_bias = (float *)(uintptr_t)s.outer_bias, h->slope = (float *)(uintptr_t)s.slope;
    h->last_weight = h->last_bias = -1;
    named(m, m->facts.last_layer, ".weight", &h->last_weight);
    named(m, m->facts.last_layer, ".bias", &h->last_bias);
    const pocket_weight *last = h->last_weight < 0 ? NULL : &m->file->weights[h->last_weight];
    if (last && (!last->std || last->rank != 2 || last->shape[0] != h->outputs || last->shape[1] != channels_at(m, h->places - 1, &ignored)))
        h->last_weight = -1;
    m->has_head = 1;
    return 0;
}

/* Features of one row: means over positions, unless these are those of the outputs. */
static void read_places(const run *r, size_t lane, size_t position, size_t positions, float *x)
{
    const pocket *m = r->model;
    for (int i = 0; i < m->head.places; i++) {
        const struct place *p = &m->program.place[i];
        const float *from = mean_of(r, p->operand);
        size_t own, width = (size_t)channels_at(m, i, &own), first = 0, last = own;
        if (positions > 1 && own == positions)
            first = position, last = position + 1;
        for (size_t c = 0; c < width; c++) {
            double sum = 0;
            for (size_t k = first; k < last; k++)
                sum += (double)from[(p->channels ? k * width + c : c * own + k) * r->lanes + lane];
            *x++ = (float)(sum / (double)(last - first));
        }
    }
    for (int k = 0; k < m->head.outputs; k++)
        *x++ = mean_of(r, m->program.output)[((size_t)k * positions + position) * r->lanes + lane];
}

static float last_variance(const run *r, const float *x, int output)
{
    const pocket *m = r->model;
    const pocket_weight *w = &m->file->weights[m->head.last_weight];
    const pocket_weight *b = m->head.last_bias < 0 ? NULL : &m->file->weights[m->head.last_bias];
    uint32_t width = (uint32_t)w->shape[1], begin = (uint32_t)output * width, first = begin, count = width;
    float sum = b && b->std ? number_of(b, (uint32_t)output, VARIANCE, r, 0) : 0;
    if (w->index) {
        for (first = 0; first < w->count && w->index[first] < begin;)
            first++;
        for (count = 0; first + count < w->count && w->index[first + count] < begin + width;)
            count++;
    }
    for (uint32_t j = first; j < first + count; j++) {
        float in = x[(w->index ? w->index[j] : j) - begin];
        sum += in * in * number_of(w, j, VARIANCE, r, 0);
    }
    return sum;
}

static float clamped(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

/* z: hidden units, logs of squares, the entropy of softmax(outputs). */
static void known_of(const head *h, const float *x, float *z)
{
    int rows = h->hidden + 2 * h->places + 1;
    const float *outputs = x + h->features - h->outputs;
    float most = outputs[0], sum = 0, entropy = 0;
    for (int i = 0; i < rows; i++) {
        double total = (double)h->bias[i];
        for (int f = 0; f < h->features; f++) {
            total += (double)h->linear[i * h->features + f] * (double)x[f];
            if (i >= h->hidden)
                total += (double)h->squares[(i - h->hidden) * h->features + f] * (double)(x[f] * x[f]);
        }
        z[i] = i < h->hidden ? clamped((float)total, 0, 50) : logf(total < 1e-12 ? 1e-12f : (float)total);
    }
    for (int k = 0; k < h->outputs; k++)
        most = outputs[k] > most ? outputs[k] : most;
    for (int k = 0; k < h->outputs; k++)
        sum += expf(outputs[k] - most);
    for (int k = 0; k < h->outputs; k++) {
        float p = expf(outputs[k] - most) / sum;
        entropy -= p > 0 ? p * logf(p) : 0;
    }
    z[rows] = entropy;
}

/* Mean and variance of the outputs of all lanes, laid out as the outputs are. */
void head_spread(const run *r, float *mean, float *variance)
{
    const head *h = &r->model->head;
    int known = h->hidden + 2 * h->places + 2, last_begin = h->features - h->outputs;
    size_t positions = r->model->outputs / (size_t)h->outputs, ignored;
    float *x = r->model->row, *z = x + h->features, *found = z + known;
    last_begin -= channels_at(r->model, h->places - 1, &ignored);
    for (size_t i = 0; i < positions * r->lanes; i++) {
        read_places(r, i % r->lanes, i / r->lanes, positions, x);
        known_of(h, x, z);
        for (int a = 0; a < 2 * h->outputs + 1; a++) {
            double sum = (double)h->outer_bias[a];
            for (int k = 0; k < known; k++)
                sum += (double)h->outer[a * known + k] * (double)z[k];
            found[a] = clamped((float)sum, -20, 20);
        }
        for (int k = 0; k < h->outputs; k++) {
            float own = h->unit[k] * 0.01f, v = expf(found[1 + h->outputs + k]);
            size_t at = (size_t)k * positions * r->lanes + i;
            mean[at] = x[h->features - h->outputs + k] * expf(found[0]) + found[1 + k] * h->unit[k];
            if (h->last_weight >= 0) {
                v *= powf(last_variance(r, x + last_begin, k) + own * own, h->slope[k]);
                v = v > 1e30f ? 1e30f : v;
            }
            variance[at] = v;
        }
    }
}
