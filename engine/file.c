/* engine/file.c: a .pocket file, from bytes to weights. */
#include "file.h"
#include "weights.h"
#include <stdlib.h>
#include <string.h>

#define LEAST_ROOM ((uint64_t)1 << 30)
enum { PER_BYTE = 64, GROWTH = 256, ON_THE_WAY = 5 };   /* arrays take this at most; all memory so many times as much */

/* The section whose log-stds these means are coded relative to, or the means coded relative to these. */
static section *partner_of(container *file, const section *one) {
    static const char *const pairs[][2] = {{"mean", "log_std"}, {"outlier_mean", "outlier_log_std"}};
    int is_means = one->coding == RELATIVE;
    for (int k = 0; k < 2; k++) {
        if (strcmp(one->first->role, pairs[k][!is_means])) continue;
        for (uint32_t i = 0; i < file->count; i++) {
            section *other = file->sections + i;
            const array *its = other->first;
            if (other->coding != (is_means ? STEPS : RELATIVE) || its->type != one->first->type) continue;
            if (!strcmp(its->family, one->first->family) && !strcmp(its->role, pairs[k][is_means])) return other;
        }
    }
    return NULL;
}

/* All sections, means after the log-stds that they go with. */
static int decode(reading *r, container *file) {
    for (int is_means = 0; is_means < 2; is_means++) {
        for (uint32_t k = 0; k < file->count; k++) {
            section *one = file->sections + k;
            if ((one->coding == RELATIVE) != is_means) continue;
            TRY(section_decode(r, one, one->coding >= STEPS ? partner_of(file, one) : NULL));
        }
    }
    return 0;
}

/* A head must be there where it is spoken of, and finite: without it the model would predict something else. */
static int head_check(reading *r, const json *facts, const layout *all) {
    static const char *const names[] = {
        "center", "log_scale", "inner_rows", "inner_scale", "inner_bias", "outer_rows", "outer_scale",
        "outer_bias", "slope",
    };
    enum { PARTS = sizeof names / sizeof *names, BEFORE = sizeof "one_pass_" - 1 };
    size_t found = 0;
    if (json_kind(json_get(json_get(facts, "model"), "one_pass")) <= JSON_NULL) return 0;
    for (uint32_t k = 0; k < all->state_count; k++) {
        const array *a = all->state[k].arrays;
        for (size_t part = 0; part < PARTS; part++) {
            const char *name = all->state[k].name;
            if (strncmp(name, "one_pass_", BEFORE) || strcmp(name + BEFORE, names[part])) continue;
            found++;
            for (uint64_t i = 0; i < a->size; i++) {
                if (!is_finite(real_at(a, i))) return refuse(r, "section %.80s holds NaN or infinite numbers", a->full);
            }
        }
    }
    if (found < PARTS || all->members > 1) return refuse(r, "the file speaks of a one-pass head but does not hold it");
    return 0;
}

/* By the bytes of names. */
static int by_name(const void *one, const void *other) {
    return strcmp(((const pocket_weight *)one)->name, ((const pocket_weight *)other)->name);
}

/* The weights of all posteriors and of the state, sorted by their names; `most`: of posteriors, dense. */
static int weights_of(reading *r, const layout *all, uint64_t most, pocket_file *out) {
    uint32_t *own_labels;
    if ((uint64_t)all->posterior_count + all->state_count > UINT32_MAX) return no_memory(r);
    TAKE(kept, out->weights, (uint64_t)all->posterior_count + all->state_count);
    TAKE(decoded, own_labels, all->table_count);
    for (uint32_t k = 0; k < all->posterior_count + all->state_count; k++) {
        int is_state = k >= all->posterior_count;
        const owner *one = is_state ? all->state + (k - all->posterior_count) : all->posteriors + k;
        pocket_weight *w = out->weights + out->count++;
        w->name = one->name;
        w->codebook = -1;
        if (is_state) TRY(state_weight(r, one, w));
        else if (one->codebook >= 0) TRY(shared_weight(r, one, all->tables, own_labels, w));
        else TRY(plain_weight(r, one, w));
        if (!is_state && w->size > most) return refuse(r, "it stands for more weights than a file of its size may");
        most -= is_state ? 0 : w->size;
        arena_free(&r->brief);
    }
    qsort(out->weights, out->count, sizeof *out->weights, by_name);
    for (uint32_t k = 1; k < out->count; k++) {
        if (!by_name(out->weights + k - 1, out->weights + k))
            return refuse(r, "%.80s is both a posterior and of the state", out->weights[k].name);
    }
    return 0;
}

/* All steps, each on what the one before has checked. */
static int read_all(reading *r, const uint8_t *bytes, size_t size, pocket_file *out) {
    container file = {0};
    layout all = {0};
    uint64_t most = PER_BYTE * (uint64_t)size;
    TRY(container_read(r, bytes, size, &file));
    TRY(model_check(r, json_get(file.facts, "model")));
    TRY(layout_read(r, &file, &all));
    if (json_kind(json_get(json_get(file.facts, "model"), "base")) > JSON_NULL && (all.members > 1 || file.program))
        return refuse(r, "a file without its base holds one network, and no program");
    TRY(sections_fill(r, &file, &all));
    arena_free(&r->brief);
    TRY(decode(r, &file));
    TRY(head_check(r, file.facts, &all));
    TRY(weights_of(r, &all, most > POCKET_MOST_WEIGHTS ? most : POCKET_MOST_WEIGHTS, out));
    out->facts = file.facts;
    out->members = all.members;
    out->program = file.program;
    out->program_size = file.program_size;
    return 0;
}

/* Reads into three arenas with one bound; two of them end here. */
int pocket_read(const uint8_t *bytes, size_t size, pocket_file *out, char *error) {
    uint64_t room = (uint64_t)GROWTH * size > LEAST_ROOM ? (uint64_t)GROWTH * size : LEAST_ROOM;
    reading r = {{0}, {0}, {0}, ON_THE_WAY * room, NULL, error};
    r.kept.room = r.decoded.room = r.brief.room = &r.room;
    memset(out, 0, sizeof *out);
    *error = 0;
    int failed = read_all(&r, bytes, size, out);
    arena_free(&r.brief);
    arena_free(&r.decoded);
    if (failed) {
        arena_free(&r.kept);
        memset(out, 0, sizeof *out);
    }
    out->arena = r.kept.last;
    return failed;
}

/* Gives back all that was read. */
void pocket_free(pocket_file *file) {
    blocks_free(file->arena);
    memset(file, 0, sizeof *file);
}
