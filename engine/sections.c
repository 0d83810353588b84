/* engine/sections.c: which section holds which arrays, and how each is coded. */
#include "layout.h"
#include <stdlib.h>
#include <string.h>

static const char *const codings[CODINGS] = {
    "raw", "planes", "integers", "exceptions", "rising", "half", "half planes", "steps", "relative",
};
#define LEAST_ROOM ((uint64_t)1 << 30)
enum { GROWTH = 256, LEAST_ARRAYS = 1 << 15, BYTES_PER_ARRAY = 64 };

/* By full names. */
static int by_name(const void *one, const void *other) {
    return strcmp((*(const array *const *)one)->full, (*(const array *const *)other)->full);
}

/* family/ROLE, or state/ and what is behind the last slash and dot; the type, if it is not the usual one. */
static int into_section(reading *r, container *file, array *a) {
    const char *name = joined(r, a->family, a->role, a->type == FLOAT32 ? "" : type_name(a->type));
    uint32_t low = 0, high = file->count;
    if (!name) return no_memory(r);
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (strcmp(file->sections[middle].name, name) < 0) low = middle + 1;
        else high = middle;
    }
    section *found = file->sections + low;
    if (low == file->count || strcmp(found->name, name)) return refuse(r, "section %.80s is missing", name);
    *(found->last ? found->last : &found->first) = a;
    found->last = &a->next;
    found->numbers += a->size;
    return 0;
}

/* Adds the arrays of some owners to a row, and takes what they need off the room. */
static int add(reading *r, owner *owners, uint32_t count, array **row, uint64_t *size, uint64_t *room) {
    for (uint32_t k = 0; k < count; k++) {
        for (int role = 0; role < MOST_ROLES && owners[k].arrays[role].full; role++) {
            array *a = row[(*size)++] = owners[k].arrays + role;
            if (a->size > *room / width_of(a->type))
                return refuse(r, "its arrays would take more memory than a file of its size may");
            *room -= a->size * width_of(a->type);
        }
    }
    return 0;
}

/* Coding and step of each section; every one has arrays, and a description. */
static int codings_of(reading *r, container *file, const json *said) {
    if (json_kind(said) != JSON_OBJECT || json_count(said) != file->count)
        return refuse(r, "its sections are not those that its arrays belong to");
    for (uint32_t k = 0; k < file->count; k++) {
        section *one = file->sections + k;
        const json *its = json_get(said, one->name), *step = json_get(its, "step");
        const char *coding = json_text(json_get(its, "coding"));
        r->section = one->name;
        if (!one->first || !its) return refuse(r, "no array belongs to it, or nothing is said of it");
        while (one->coding < CODINGS && (!coding || strcmp(coding, codings[one->coding]))) one->coding++;
        one->step = json_number(step);
        int has_step = json_kind(step) == JSON_REAL && one->step > 1e-9 && one->step < 1e3;
        int is_good = one->coding < CODINGS && json_count(its) == 1u + (step != NULL);
        if (!is_good || (json_kind(step) > JSON_NULL && !has_step))
            return refuse(r, "its coding is none that is known here");
        if (one->coding >= STEPS && !has_step) return refuse(r, "it does not say its step");
    }
    r->section = NULL;
    return 0;
}

/* All arrays in the order of their full names, each into its section; what they may take is bounded. */
int sections_fill(reading *r, container *file, layout *all) {
    uint64_t room = GROWTH * file->size > LEAST_ROOM ? GROWTH * file->size : LEAST_ROOM, count = 0;
    array **rising;
    TAKE(brief, rising, MOST_ROLES * ((uint64_t)all->posterior_count + all->table_count + all->state_count));
    TRY(add(r, all->posteriors, all->posterior_count, rising, &count, &room));
    TRY(add(r, all->tables, all->table_count, rising, &count, &room));
    TRY(add(r, all->state, all->state_count, rising, &count, &room));
    if (count > LEAST_ARRAYS && count > file->size / BYTES_PER_ARRAY)
        return refuse(r, "it has more arrays than a file of its size may");
    qsort(rising, (size_t)count, sizeof *rising, by_name);
    for (uint64_t k = 0; k < count; k++) {
        if (rising[k]->size) TRY(into_section(r, file, rising[k]));
    }
    return codings_of(r, file, json_get(file->facts, "sections"));
}
