/* engine/layout.c: which arrays there are, and which section holds them. */
#include "layout.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct { const char *name; size_t width; } types[TYPES] = {
    {"float32", 4}, {"float64", 8}, {"float16", 2}, {"bfloat16", 2}, {"int64", 8},
    {"int32", 4}, {"int16", 2}, {"int8", 1}, {"uint8", 1}, {"bool", 1},
};
static const family families[] = {
    {"gaussian", {"mean", "log_std", "prior_std"}},
    {"log_uniform", {"mean", "log_std", "prior_std"}},
    {"narrow_spike", {"mean", "log_std", "log_odds", "prior_std", "prior_log_odds", "layout", "spike_std"}},
    {"point", {"mean", "prior_std"}},
    {"shared", {"label", "outlier", "outlier_mean", "outlier_log_std", "blend", "blend_label", "blend_share",
                "prior_std", "shape", "index", "structure"}},
    {"sparse", {"index", "mean", "log_std", "prior_std", "shape", "structure"}},
    {"sparse_point", {"index", "mean", "prior_std", "shape", "structure"}},
    {"spike_slab", {"mean", "log_std", "log_odds", "prior_std", "prior_log_odds", "layout"}},
};
static const family table = {"table", {"mean", "log_std", "draw"}};
#define MOST_VALUES ((uint64_t)1 << 56)
enum { LONGEST_SIZE = 17 };

size_t width_of(int type) { return types[type].width; }
const char *type_name(int type) { return types[type].name; }

/* A family of the closed table; NULL: no such one. */
static const family *family_called(const char *name) {
    for (size_t k = 0; name && k < sizeof families / sizeof *families; k++) {
        if (!strcmp(name, families[k].name)) return families + k;
    }
    return NULL;
}

/* Type and shape from a word: 64x3x3x3, int64:10; of a single number nothing stands behind the type. */
static int word_of(reading *r, const char *word, array *a) {
    const char *colon = word ? strchr(word, ':') : NULL, *at = colon ? colon + 1 : word;
    uint64_t values = 1;
    size_t length = colon ? (size_t)(colon - word) : 0;
    for (; colon && a->type < TYPES; a->type++) {
        if (strlen(type_name(a->type)) == length && !memcmp(word, type_name(a->type), length)) break;
    }
    if (!word || a->type == TYPES) return refuse(r, "array %.80s has no type that is read here", a->full);
    a->size = 1;
    while (*at) {
        size_t digits = strspn(at, "0123456789");
        uint64_t size = 0;
        if (!digits || digits > LONGEST_SIZE || a->rank == MOST_AXES)
            return refuse(r, "array %.80s has no shape that is read here", a->full);
        for (; digits; digits--) size = 10 * size + (uint64_t)(*at++ - '0');
        if (size && values > MOST_VALUES / size)
            return refuse(r, "array %.80s has no shape that fits any memory", a->full);
        values *= size ? size : 1;
        a->shape[a->rank++] = size;
        a->size *= size;
        if (*at == 'x' && at[1]) at++;
        else if (*at) return refuse(r, "array %.80s names no type and shape", a->full);
    }
    return 0;
}

/* Two or three words with slashes in between; NULL: no memory. */
char *joined(reading *r, const char *one, const char *two, const char *three) {
    size_t size = strlen(one) + strlen(two) + strlen(three) + 3;
    char *text = arena_take(&r->decoded, size, 1);
    if (text) snprintf(text, size, *three ? "%s/%s/%s" : "%s/%s", one, two, three);
    return text;
}

/* The arrays of one posterior or codebook, if they are exactly those of its family. */
static int owner_of(reading *r, const char *kind, const char *name, const json *words, const family *its, owner *made) {
    uint32_t count = 0;
    made->name = name;
    made->kind = its;
    made->codebook = -1;
    TAKE(decoded, made->arrays, MOST_ROLES);
    for (; count < MOST_ROLES && its->roles[count]; count++) {
        array *a = made->arrays + count;
        const json *word = json_get(words, its->roles[count]);
        a->role = its->roles[count];
        a->family = its->name;
        a->full = joined(r, kind, name, a->role);
        if (!a->full) return no_memory(r);
        if (!word) return refuse(r, "array %.200s is missing", a->full);
        TRY(word_of(r, json_text(word), a));
    }
    return json_count(words) == count ? 0 : refuse(r, "%.200s has arrays that are not named in the description", name);
}

/* How many names of a kind have arrays. */
static uint32_t names_in(const json *home) {
    uint32_t count = 0;
    if (json_kind(home) != JSON_OBJECT) return 0;
    for (uint32_t k = 0; k < json_count(home); k++)
        count += json_kind(json_at(home, k)) == JSON_OBJECT && json_count(json_at(home, k));
    return count;
}

/* Which codebook each shared posterior uses: they are numbered from 0 on, and all are used. */
static int codebooks_of(reading *r, const json *numbers, layout *out) {
    uint32_t shared = 0, most = json_count(numbers);
    unsigned char *used;
    if (numbers && json_kind(numbers) != JSON_OBJECT) return refuse(r, "the description's tables are not an object");
    TAKE(brief, used, most);
    for (uint32_t k = 0; k < out->posterior_count; k++) {
        owner *q = out->posteriors + k;
        if (strcmp(q->kind->name, "shared")) continue;
        const json *number = json_get(numbers, q->name);
        if (json_kind(number) != JSON_WHOLE || !(json_number(number) >= 0 && json_number(number) < most))
            return refuse(r, "the description's tables are not numbers of tables from 0 on");
        q->codebook = (int)json_number(number);
        out->table_count += !used[q->codebook];
        used[q->codebook] = 1;
        shared++;
    }
    for (uint32_t k = 0; k < out->table_count; k++) shared += used[k] ? 0 : most + 1;
    return shared == most ? 0 : refuse(r, "the description's tables are not one for each shared tensor");
}

/* Posteriors by rising names, with all arrays of their families; number of members. */
static int posteriors_of(reading *r, const json *facts, const json *words, layout *out) {
    const json *named = json_get(facts, "posteriors"), *members = json_get(facts, "members");
    out->posterior_count = json_count(named);
    double count = json_kind(members) == JSON_WHOLE ? json_number(members) : 0;
    if (json_kind(named) != JSON_OBJECT || !out->posterior_count)
        return refuse(r, "the description's posteriors are not an object with entries");
    if (!(count >= 1 && count <= out->posterior_count))
        return refuse(r, "the description's members are not a count");
    out->members = (uint32_t)count;
    TAKE(decoded, out->posteriors, out->posterior_count);
    for (uint32_t k = 0; k < out->posterior_count; k++) {
        const json *entry = json_at(named, k);
        const family *its = family_called(json_text(entry));
        if (!its)
            return refuse(r, "section posterior/%.80s: no family is called so", json_key(entry));
        const char *name = json_key(entry);
        TRY(owner_of(r, "posterior", name, json_get(words, name), its, out->posteriors + k));
    }
    if (names_in(words) != out->posterior_count)
        return refuse(r, "it has arrays that are not named in the description");
    return codebooks_of(r, json_get(facts, "tables"), out);
}

/* The codebooks, whose names are 0, 1, 2, ... */
static int tables_of(reading *r, const json *words, layout *out) {
    TAKE(decoded, out->tables, out->table_count);
    for (uint32_t k = 0; k < out->table_count; k++) {
        char *number;
        TAKE(decoded, number, 12);
        snprintf(number, 12, "%lu", (unsigned long)k);
        TRY(owner_of(r, "table", number, json_get(words, number), &table, out->tables + k));
    }
    return names_in(words) == out->table_count ? 0 : refuse(r, "it has tables that nothing uses");
}

/* Every tensor of the state is one array. */
static int state_of(reading *r, const json *words, layout *out) {
    out->state_count = json_kind(words) == JSON_OBJECT ? json_count(words) : 0;
    TAKE(decoded, out->state, out->state_count);
    for (uint32_t k = 0; k < out->state_count; k++) {
        const json *word = json_at(words, k);
        owner *made = out->state + k;
        made->name = json_key(word);
        made->codebook = -1;
        TAKE(decoded, made->arrays, 2);  /* the second is the end of the row */
        array *a = made->arrays;
        const char *slash = strrchr(made->name, '/'), *dot = strrchr(slash ? slash : made->name, '.');
        a->family = "state";
        a->role = dot ? dot + 1 : slash ? slash + 1 : made->name;
        a->full = joined(r, a->family, made->name, "");
        if (!a->full) return no_memory(r);
        TRY(word_of(r, json_text(word), a));
    }
    return 0;
}

/* All arrays of the three kinds, and none else. */
int layout_read(reading *r, const container *file, layout *out) {
    static const char *const kinds[] = {"posterior", "table", "state"};
    const json *words = json_get(file->facts, "arrays");
    uint32_t known = 0;
    for (int k = 0; k < 3; k++) known += json_get(words, kinds[k]) != NULL;
    if (json_kind(words) != JSON_OBJECT || known != json_count(words))
        return refuse(r, "the description's arrays are not an object of posteriors, tables and state");
    TRY(posteriors_of(r, file->facts, json_get(words, "posterior"), out));
    TRY(tables_of(r, json_get(words, "table"), out));
    TRY(state_of(r, json_get(words, "state"), out));
    return 0;
}
