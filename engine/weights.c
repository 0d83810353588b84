/* engine/weights.c: each family, and the state, as a weight. */
#include "weights.h"
#include <math.h>
#include <string.h>

/* What is wrong with a posterior. */
static int wrong(reading *r, const pocket_weight *w, const char *what) {
    return refuse(r, "section posterior/%.80s: %s", w->name, what);
}

/* Whether two arrays have one type and shape. */
static int are_alike(const array *one, const array *other) {
    return one->type == other->type && one->rank == other->rank && !memcmp(one->shape, other->shape, sizeof one->shape);
}

/* Whether an array is a single finite real. */
static int is_number(const array *a) { return is_real(a) && !a->rank && is_finite(real_at(a, 0)); }

/* One positive number. */
int prior_check(reading *r, const owner *q) {
    const array *prior = array_of(q, "prior_std");
    if (is_number(prior) && real_at(prior, 0) > 0) return 0;
    return refuse(r, "section posterior/%.80s: prior_std must be a single number above 0", q->name);
}

/* The stored numbers in rising places as float32; exp of them where wanted, rounded from a double. */
static int floats_of(reading *r, const array *a, const support *where, int is_log, const float **out) {
    float *values;
    TAKE(kept, values, where->count);
    for (uint32_t k = 0; k < where->count; k++) {
        double value = real_at(a, stored_at(where, k));
        values[k] = single_of(is_log ? exp(value) : value);
    }
    *out = values;
    return 0;
}

/* gaussian, log_uniform, point, sparse, sparse_point: N(mean, exp(log_std)^2), or the mean. */
static int normal_weight(reading *r, const owner *q, int is_sparse, int is_certain, pocket_weight *w) {
    const array *mean = array_of(q, "mean"), *log_std = is_certain ? mean : array_of(q, "log_std");
    support where = {0};
    if (!is_real(mean) || !are_alike(mean, log_std))
        return wrong(r, w, "means and log-stds must agree and be real numbers");
    TRY(is_sparse ? places_of(r, q, w, &where) : shape_from(r, mean, w));
    if (!is_sparse) where.count = w->count;
    TRY(index_of(r, &where, w));
    TRY(floats_of(r, mean, &where, 0, &w->mean));
    w->kind = is_certain ? POCKET_CERTAIN : POCKET_NORMAL;
    return is_certain ? 0 : floats_of(r, log_std, &where, 1, &w->std);
}

/* What an inclusion variable is for, and along which axis they lie. */
static int layout_check(reading *r, const owner *q, pocket_weight *w) {
    const array *stored = array_of(q, "layout"), *odds = array_of(q, "log_odds"), *mean = array_of(q, "mean");
    int64_t group = 3, axis = 0;
    if (stored->type == INT64 && stored->rank == 1 && stored->size == 2) {
        group = whole_at(stored, 0);
        axis = whole_at(stored, 1);
    }
    if (group < 0 || group > POCKET_PER_OUTPUT || axis < 0 || axis >= (w->rank ? w->rank : 1))
        return wrong(r, w, "layout must be a granularity and an axis");
    int wide = mean->type == FLOAT64 ? FLOAT64 : FLOAT32, good = odds->type == mean->type || odds->type == wide;
    int is_own = group == POCKET_PER_WEIGHT || !w->rank;
    if (is_own) good = good && odds->rank == mean->rank && !memcmp(odds->shape, mean->shape, sizeof odds->shape);
    else good = good && odds->rank == 1 && odds->shape[0] == mean->shape[axis];
    if (!good) return wrong(r, w, "log_odds are not one for each inclusion variable");
    w->group = (int)group;
    w->group_axis = (int)axis;
    return is_number(array_of(q, "prior_log_odds")) ? 0 : wrong(r, w, "prior_log_odds must be a single real number");
}

/* p = 1 / (1 + exp(-log_odds)) of every weight. */
static int inclusion_of(reading *r, const array *odds, pocket_weight *w) {
    float *values, *each;
    uint32_t inner = 1;
    TAKE(kept, values, w->count);
    TAKE(brief, each, odds->size);
    for (uint64_t k = 0; k < odds->size; k++) each[k] = single_of(1 / (1 + exp(-real_at(odds, k))));
    for (int axis = w->group_axis + 1; axis < w->rank; axis++) inner *= (uint32_t)w->shape[axis];
    for (uint32_t k = 0; k < w->count; k++)
        values[k] = each[w->group && w->rank ? k / inner % (uint32_t)w->shape[w->group_axis] : k];
    w->inclusion = values;
    return 0;
}

/* spike_slab and narrow_spike; in the latter inclusion variables are of the prior only: it is drawn as a Gaussian. */
static int spike_weight(reading *r, const owner *q, int is_narrow, pocket_weight *w) {
    TRY(normal_weight(r, q, 0, 0, w));
    TRY(layout_check(r, q, w));
    if (!is_narrow) {
        w->kind = POCKET_SPIKE_SLAB;
        return inclusion_of(r, array_of(q, "log_odds"), w);
    }
    const array *spike = array_of(q, "spike_std");
    if (!is_number(spike) || !(real_at(spike, 0) > 0)) return wrong(r, w, "spike_std must be a single number above 0");
    w->spike_std = single_of(real_at(spike, 0));
    w->group = w->group_axis = 0;
    return 0;
}

/* Every family but the shared one. */
int plain_weight(reading *r, const owner *q, pocket_weight *w) {
    const char *kind = q->kind->name;
    TRY(prior_check(r, q));
    if (!strcmp(kind, "spike_slab") || !strcmp(kind, "narrow_spike")) return spike_weight(r, q, kind[0] == 'n', w);
    int is_sparse = !strncmp(kind, "sparse", 6), is_certain = strstr(kind, "point") != NULL;
    return normal_weight(r, q, is_sparse, is_certain, w);
}

/* A tensor of the state; integers and bool, too, become float32. */
int state_weight(reading *r, const owner *tensor, pocket_weight *w) {
    support where = {0};
    TRY(shape_from(r, tensor->arrays, w));
    where.count = w->count;
    w->kind = POCKET_CERTAIN;
    return floats_of(r, tensor->arrays, &where, 0, &w->mean);
}
