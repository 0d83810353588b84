/* engine/load.c: the join. Bytes of a file become an open model, and facts that a skin shows. */
#include "inside.h"
#include "json.h"
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct loaded { pocket_file file; float gone[]; } loaded;

static const json *said(const pocket_file *file, const char *name)
{
    return json_get(json_get(file->facts, "model"), name);
}

static float number_or_0(const json *node)
{
    double found = json_number(node);
    return found > 0 ? (float)found : 0;
}

/* A Bayesian model of unknown estimator is one of independent noise at every output. */
static pocket_facts facts_of(const loaded *from)
{
    const json *head = said(&from->file, "one_pass"), *places = json_get(head, "places");
    const char *estimator = json_text(said(&from->file, "estimator"));
    pocket_facts facts = {
        .likelihood = json_text(said(&from->file, "likelihood")),
        .temperature = number_or_0(said(&from->file, "temperature")),
        .moments_factor = number_or_0(said(&from->file, "moments_factor")),
        .is_local = !estimator || !strcmp(estimator, "lrt"),
        .keeps_dropout = json_number(said(&from->file, "keeps_dropout")) == 1,
        .gone = json_count(json_get(head, "gone")) ? from->gone : NULL,
    };
    if (json_number(json_get(head, "last_variance")) == 1)
        facts.last_layer = json_text(json_at(json_at(places, json_count(places) - 1), 0));
    return facts;
}

static loaded *read_file(const uint8_t *bytes, size_t size, char *error)
{
    pocket_file file;
    if (pocket_read(bytes, size, &file, error))
        return NULL;
    const json *gone = json_get(said(&file, "one_pass"), "gone");
    uint32_t count = json_count(gone);
    loaded *made = calloc(1, sizeof *made + 2 * (size_t)count * sizeof(float));
    if (!made) {
        snprintf(error, 256, "there is no memory");
        pocket_free(&file);
        return NULL;
    }
    made->file = file;
    for (uint32_t i = 0; i < 2 * count; i++)
        made->gone[i] = (float)json_number(json_at(json_at(gone, i / 2), i % 2));
    return made;
}

/* Places of the program are those that the head was taught at. */
static int check_places(const pocket *m, char *error)
{
    const json *places = json_get(said(m->file, "one_pass"), "places");
    int fits = (uint32_t)m->program.places == json_count(places);
    for (int i = 0; fits && i < m->program.places; i++) {
        const place *p = &m->program.place[i];
        const shape *s = &m->slots[p->operand >= 0 ? p->operand : m->weight_slot[-1 - p->operand]].shape;
        int axis = p->channels ? s->rank - 1 : 0;
        fits = axis >= 0 && axis < s->rank && (double)s->side[axis] == json_number(json_at(json_at(places, (uint32_t)i), 2));
    }
    if (!fits)
        snprintf(error, 256, "section program: its places are not those of the one-pass head");
    return !fits;
}

pocket *pocket_load(const uint8_t *bytes, size_t size, const pocket_options *options, char *error)
{
    loaded *from = read_file(bytes, size, error);
    pocket *m = NULL;
    if (!from)
        return NULL;
    pocket_facts facts = facts_of(from);
    if (!from->file.program)
        snprintf(error, 256, "the file has no program of its network: pb.save(model, path, example=x) writes one");
    else
        m = pocket_open(&from->file, &facts, options, error);
    if (!m || check_places(m, error)) {
        pocket_close(m);
        pocket_free(&from->file);
        free(from);
        return NULL;
    }
    m->loaded = from;
    return m;
}

pocket *pocket_again(const pocket *model, const pocket_options *options, char *error)
{
    return pocket_open(model->file, &model->facts, options, error);
}

void loaded_free(loaded *from)
{
    if (from)
        pocket_free(&from->file);
    free(from);
}

/* Whether an operation reads the buffer before it and no other, and its weight is read by none before. */
static int is_next(const program *p, int at)
{
    const operation *op = &p->list[at];
    int code = op->row->code, buffers = 0;
    int goes_on = code == 1 || code == 3 || (code >= 11 && code <= 14) || code == 17 || code == 33 || code >= 40;
    for (int k = 0; k < op->operands; k++) {
        if (op->x[k] != ABSENT && op->x[k] >= 0 && (op->x[k] != op->result - 1 || buffers++))
            return 0;
        for (int i = 0; op->x[k] != ABSENT && op->x[k] < 0 && i < at; i++)
            for (int j = 0; j < p->list[i].operands; j++)
                if (p->list[i].x[j] == op->x[k])
                    return 0;
    }
    return buffers == 1 && (goes_on || (code == 19 && at == 0));
}

/* A chain of linear layers and functions of one number, as in pocketbayes.prediction.choosing. */
static int is_chain(const pocket *m)
{
    for (int i = 0; i < m->program.operations; i++)
        if (!is_next(&m->program, i))
            return 0;
    return m->program.inputs == 1 && !m->program.whole[0];
}

/* Moments are as good as draws: one value, Gaussian noise, independent Gaussian weights. */
static int suits_moments(const pocket *m)
{
    if (!m->facts.likelihood || strcmp(m->facts.likelihood, "gaussian") || m->outputs != 1 || m->members > 1)
        return 0;
    for (uint32_t i = 0; i < m->file->count; i++) {
        const pocket_weight *w = &m->file->weights[i];
        if (w->kind == POCKET_SPIKE_SLAB || w->spike_std > 0 || (w->codebook >= 0 && w->draws_once))
            return 0;
    }
    const json *promise = said(m->file, "conformal"), *by = json_get(promise, "estimator");
    if (json_count(promise) && (!json_text(by) || strcmp(json_text(by), "moments")))
        return 0;  /* it holds for draws */
    return m->is_random && !m->facts.keeps_dropout && !m->no_moments[0] && is_chain(m);
}

static int kind_of(const char *likelihood)
{
    if (!likelihood || !strcmp(likelihood, "categorical"))
        return POCKET_CLASSES;
    return strcmp(likelihood, "bernoulli") ? POCKET_VALUES : POCKET_LABELS;
}

int pocket_default(const pocket *m)
{
    const json *taught = json_get(said(m->file, "one_pass"), "likelihood");
    if (m->has_head && m->members == 1 && (!json_text(taught) || kind_of(json_text(taught)) == m->kind))
        return POCKET_ONE_PASS;
    return suits_moments(m) ? POCKET_MOMENTS : m->is_random ? POCKET_WEIGHT : POCKET_MEAN;
}

int pocket_has_random_weights(const pocket *m)
{
    for (uint32_t i = 0; i < m->file->count; i++)
        if (m->file->weights[i].std)
            return 1;
    return 0;
}

int pocket_members(const pocket *m) { return m->members; }
int pocket_inputs(const pocket *m) { return m->program.inputs; }
int pocket_is_whole(const pocket *m, int number) { return m->program.whole[number]; }

/* JSON text of a fact; counts what has no room, too. */
typedef struct writer { char *to; size_t size, room; } writer;

static void put(writer *w, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++, w->size++)
        if (w->size + 1 < w->room)
            w->to[w->size] = text[i];
}

static void put_text(writer *w, const char *text)
{
    put(w, "\"", 1);
    for (; *text; text++) {
        char escape[8];
        unsigned char c = (unsigned char)*text;
        if (c < 32 || c == '"' || c == '\\')
            put(w, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", c));
        else
            put(w, text, 1);
    }
    put(w, "\"", 1);
}

static void put_number(writer *w, double number)
{
    char digits[40] = "1e999", *point;
    if (fabs(number) < INFINITY)
        snprintf(digits, sizeof digits, "%.17g", number);
    else if (number < 0)
        memcpy(digits, "-1e999", 7);
    if ((point = strchr(digits, *localeconv()->decimal_point)) != NULL)
        *point = '.';
    put(w, digits, strlen(digits));
}

static void put_node(writer *w, const json *node)
{
    int kind = json_kind(node), is_list = kind == JSON_LIST;
    if (kind == JSON_TEXT)
        put_text(w, json_text(node));
    else if (kind == JSON_WHOLE || kind == JSON_REAL)
        put_number(w, json_number(node));
    else if (kind == JSON_BOOL)
        json_number(node) == 1 ? put(w, "true", 4) : put(w, "false", 5);
    else if (kind != JSON_LIST && kind != JSON_OBJECT)
        put(w, "null", 4);
    else {
        put(w, is_list ? "[" : "{", 1);
        for (uint32_t i = 0; i < json_count(node); i++) {
            put(w, ",", i > 0);
            if (!is_list) {
                put_text(w, json_key(json_at(node, i)));
                put(w, ":", 1);
            }
            put_node(w, json_at(node, i));
        }
        put(w, is_list ? "]" : "}", 1);
    }
}

size_t pocket_fact(const pocket *m, const char *name, char *text, size_t room)
{
    writer w = {text, 0, room};
    put_node(&w, name && *name ? said(m->file, name) : json_get(m->file->facts, "model"));
    if (room)
        text[w.size < room ? w.size : room - 1] = 0;
    return w.size;
}
