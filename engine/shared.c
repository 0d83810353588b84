/* engine/shared.c: weights that look into a codebook of Gaussians. */
#include "weights.h"
#include <math.h>
#include <string.h>

typedef struct values {        /* of the stored numbers, in the order of the file */
    const array *mean, *log_std;
    uint32_t entries;
    float *means, *stds;
    uint32_t *labels;
    unsigned char *taken;      /* 1: an outlier or a blend */
    uint32_t count, *own;      /* own: the next label beyond the entries, of this codebook */
} values;

/* What is wrong with a posterior. */
static int wrong(reading *r, const owner *q, const char *what) {
    return refuse(r, "section posterior/%.80s: %s", q->name, what);
}

/* Whether both are lists of so many numbers. */
static int are_lists(const array *one, const array *other, uint64_t size) {
    return one->rank == 1 && other->rank == 1 && one->size == size && other->size == size;
}

/* A list of at least one entry, and how it is drawn. */
static int codebook_of(reading *r, const owner *table, values *all, pocket_weight *w) {
    const array *draw = array_of(table, "draw");
    all->mean = array_of(table, "mean");
    all->log_std = array_of(table, "log_std");
    uint64_t size = all->mean->size;
    if (!is_real(all->mean) || all->mean->type != all->log_std->type || !are_lists(all->mean, all->log_std, size)
        || !size || size > INT32_MAX)
        return refuse(r, "section table/%s: a codebook is a list of at least one entry", table->name);
    if (!is_scalar(draw, INT64) || whole_at(draw, 0) < 0 || whole_at(draw, 0) > 1)
        return refuse(r, "section table/%s: draw must be 0 or 1", table->name);
    all->entries = (uint32_t)size;
    w->draws_once = (int)whole_at(draw, 0);
    return 0;
}

/* Whether an array has labels of entries. */
static int are_labels(const array *a, uint32_t entries) {
    if (a->type != UINT8 && a->type != INT16 && a->type != INT32) return 0;
    for (uint64_t k = 0; k < a->size; k++) {
        if (whole_at(a, k) < 0 || whole_at(a, k) >= entries) return 0;
    }
    return 1;
}

/* Every stored number as its entry says. */
static int look_up(reading *r, const owner *q, values *all) {
    const array *label = array_of(q, "label");
    float *stds;
    if (label->rank != 1 || label->size != all->count || !are_labels(label, all->entries))
        return wrong(r, q, "label must be an entry for each weight");
    TAKE(brief, stds, all->entries);
    for (uint32_t k = 0; k < all->entries; k++) stds[k] = single_of(exp(real_at(all->log_std, k)));
    for (uint32_t k = 0; k < all->count; k++) {
        uint32_t entry = (uint32_t)whole_at(label, k);
        all->labels[k] = entry;
        all->means[k] = single_of(real_at(all->mean, entry));
        all->stds[k] = stds[entry];
    }
    return 0;
}

/* A place of an outlier or blend, which nothing else has; its number beyond the entries. */
static int take_place(reading *r, const owner *q, const array *places, uint64_t number, values *all, uint32_t *place) {
    int64_t found = whole_at(places, number);
    if (found < 0 || found >= all->count || all->taken[found])
        return wrong(r, q, "an outlier or blend lies outside, or is named twice");
    all->taken[found] = 1;
    all->labels[found] = all->entries + (*all->own)++;
    *place = (uint32_t)found;
    return 0;
}

/* Gaussians of their own. */
static int put_outliers(reading *r, const owner *q, values *all) {
    const array *places = array_of(q, "outlier"), *mean = array_of(q, "outlier_mean");
    const array *log_std = array_of(q, "outlier_log_std");
    if (places->type != INT32 || places->rank != 1 || mean->type != all->mean->type || log_std->type != mean->type
        || !are_lists(mean, log_std, places->size))
        return wrong(r, q, "outliers need a place, a mean and a log-std each");
    for (uint64_t k = 0; k < places->size; k++) {
        uint32_t place;
        TRY(take_place(r, q, places, k, all, &place));
        all->means[place] = single_of(real_at(mean, k));
        all->stds[place] = single_of(exp(real_at(log_std, k)));
    }
    return 0;
}

/* A mixture a N(m, v) + (1 - a) N(n, u) by its moments: a m + (1 - a) n and a v + (1 - a) u + a (1 - a) (m - n)^2. */
static int put_blends(reading *r, const owner *q, values *all) {
    const array *places = array_of(q, "blend"), *pair = array_of(q, "blend_label");
    const array *share = array_of(q, "blend_share");
    if (places->type != INT32 || !are_lists(places, share, places->size) || share->type != all->mean->type
        || pair->rank != 2 || pair->shape[0] != places->size || pair->shape[1] != 2 || !are_labels(pair, all->entries))
        return wrong(r, q, "blends need a place, two labels and a share each");
    for (uint64_t k = 0; k < places->size; k++) {
        uint64_t one = (uint64_t)whole_at(pair, 2 * k), other = (uint64_t)whole_at(pair, 2 * k + 1);
        double a = real_at(share, k), m = real_at(all->mean, one), n = real_at(all->mean, other);
        double v = exp(2 * real_at(all->log_std, one)), u = exp(2 * real_at(all->log_std, other));
        uint32_t place;
        if (!(a >= 0 && a <= 1)) return wrong(r, q, "the share of a blend must lie between 0 and 1");
        TRY(take_place(r, q, places, k, all, &place));
        all->means[place] = single_of(a * m + (1 - a) * n);
        all->stds[place] = single_of(sqrt(a * v + (1 - a) * u + a * (1 - a) * (m - n) * (m - n)));
    }
    return 0;
}

/* Means, stds and labels in rising places. */
static int settle(reading *r, const values *all, const support *where, pocket_weight *w) {
    float *means, *stds;
    uint32_t *labels;
    TAKE(kept, means, all->count);
    TAKE(kept, stds, all->count);
    TAKE(kept, labels, all->count);
    for (uint32_t k = 0; k < all->count; k++) {
        uint32_t from = stored_at(where, k);
        means[k] = all->means[from];
        stds[k] = all->stds[from];
        labels[k] = all->labels[from];
    }
    w->mean = means;
    w->std = stds;
    w->label = labels;
    w->kind = POCKET_NORMAL;
    return 0;
}

/* `own_labels`: how many outliers and blends each codebook has had before. */
int shared_weight(reading *r, const owner *q, const owner *tables, uint32_t *own_labels, pocket_weight *w) {
    values all = {0};
    support where;
    TRY(prior_check(r, q));
    TRY(codebook_of(r, tables + q->codebook, &all, w));
    TRY(places_of(r, q, w, &where));
    all.count = where.count;
    all.own = own_labels + q->codebook;
    TAKE(brief, all.means, all.count);
    TAKE(brief, all.stds, all.count);
    TAKE(brief, all.labels, all.count);
    TAKE(brief, all.taken, all.count);
    TRY(look_up(r, q, &all));
    TRY(put_outliers(r, q, &all));
    TRY(put_blends(r, q, &all));
    TRY(index_of(r, &where, w));
    w->codebook = q->codebook;
    return settle(r, &all, &where, w);
}
