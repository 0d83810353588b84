/* engine/model.c: what the description says of the model, checked before anything is made of it. */
#include "container.h"
#include <math.h>
#include <string.h>

static const char *const likelihoods[] = {
    "categorical", "gaussian", "heteroscedastic", "student-t", "poisson", "negative-binomial", "bernoulli", NULL,
};
static const char *const estimators[] = {"lrt", "weight", "flipout", "mean", "moments", "one_pass", "none", NULL};
enum { ESTIMATORS = 4, ALL = 7 };   /* the first of them train, all of them predict */
#define MOST_GONE 1099511627776.0   /* 2^40 */
#define MOST_APART 1e9

/* Kinds of values; the last three are those of the library's closed tables. */
static int is_null(const json *node) { return json_kind(node) <= JSON_NULL; }

/* Whether a text is among the first ones of these. */
static int is_among(const json *node, const char *const *words, int count) {
    const char *text = json_text(node);
    for (int k = 0; text && k < count && words[k]; k++) {
        if (!strcmp(text, words[k])) return 1;
    }
    return 0;
}

static int is_number(const json *node) { return json_kind(node) == JSON_WHOLE || json_kind(node) == JSON_REAL; }
static int is_bounded(const json *node) { return is_number(node) && json_number(node) < INFINITY; }
static int is_positive(const json *node) { return is_bounded(node) && json_number(node) > 0; }
static int is_std(const json *node) { return is_positive(node) && json_number(node) >= 1e-150 && json_number(node) <= 1e150; }
static int is_count(const json *node) { return json_kind(node) == JSON_WHOLE && json_number(node) >= 1; }
static int is_share(const json *node) { return json_number(node) == 0 || is_positive(node); }
static int is_object(const json *node) { return json_kind(node) == JSON_OBJECT; }
static int is_text(const json *node) { return json_kind(node) == JSON_TEXT; }

static int is_likelihood(const json *node) { return is_among(node, likelihoods, 99); }
static int is_estimator(const json *node) { return is_among(node, estimators, ESTIMATORS); }

/* Whether all items of a list are of a kind. */
static int are_all(const json *list, int (*good)(const json *)) {
    if (json_kind(list) != JSON_LIST) return 0;
    for (uint32_t k = 0; k < json_count(list); k++) {
        if (!good(json_at(list, k))) return 0;
    }
    return 1;
}

/* How many of some keys an object has: all its others are unknown ones. */
static uint32_t has_of(const json *object, const char *const *keys) {
    uint32_t count = 0;
    for (; *keys; keys++) count += json_get(object, *keys) != NULL;
    return count;
}

/* Whether a field is good if it is there; null is there. */
static int is_missing_or(const json *object, const char *key, int (*good)(const json *)) {
    const json *node = json_get(object, key);
    return !node || good(node);
}

/* {"name", "options"} */
static int is_network(const json *found) {
    return is_object(found) && json_count(found) == 2 && is_text(json_get(found, "name"))
        && is_object(json_get(found, "options"));
}

/* A method, and numbers beside it; what a later version adds is passed over. */
static int is_training(const json *found) {
    static const char *const counts[] = {"epochs", "best_epoch", "steps"}, *const words[] = {"subset", "prior_by"};
    const json *lr = json_get(found, "lr"), *range = json_get(found, "prior_std");
    int good = is_text(json_get(found, "method")) && (is_null(lr) || is_share(lr));
    for (int k = 0; k < 3; k++) good = good && is_missing_or(found, counts[k], is_count);
    for (int k = 0; k < 2; k++) good = good && is_missing_or(found, words[k], is_text);
    return good && (!json_get(found, "prior_by") || (json_count(range) == 2 && are_all(range, is_positive)));
}

/* A level, the examples and draws behind it, and as many thresholds as their shape has. */
static int is_conformal(const json *found) {
    static const char *const keys[] = {"level", "threshold", "shape", "examples", "num_samples", NULL};
    const json *estimator = json_get(found, "estimator"), *level = json_get(found, "level");
    const json *shape = json_get(found, "shape");
    double numbers = 1;
    if (!is_object(found) || has_of(found, keys) != 5 || json_count(found) != 5 + (estimator != NULL)) return 0;
    if (estimator && !is_among(estimator, estimators, ALL)) return 0;
    if (!is_positive(level) || json_number(level) >= 1) return 0;
    if (!is_count(json_get(found, "examples")) || !is_count(json_get(found, "num_samples"))) return 0;
    if (!are_all(shape, is_count)) return 0;
    for (uint32_t k = 0; k < json_count(shape); k++) numbers *= json_number(json_at(shape, k));
    const json *threshold = json_get(found, "threshold");
    return json_count(threshold) == numbers && are_all(threshold, is_share);
}

/* [name, axis of the examples, channels] */
static int is_place(const json *place) {
    const json *axis = json_at(place, 1);
    return json_kind(place) == JSON_LIST && json_count(place) == 3 && is_text(json_at(place, 0))
        && is_count(json_at(place, 2)) && json_kind(axis) == JSON_WHOLE && json_number(axis) >= 0
        && json_number(axis) <= 3;
}

/* [channels, sum of their squares] */
static int is_gone(const json *pair) {
    const json *channels = json_at(pair, 0), *square = json_at(pair, 1);
    return json_kind(pair) == JSON_LIST && json_count(pair) == 2
        && json_kind(channels) == JSON_WHOLE && json_number(channels) >= 0 && json_number(channels) <= MOST_GONE
        && json_kind(square) == JSON_REAL && json_number(square) >= 0 && json_number(square) <= MOST_GONE;
}

/* Two counts, and differences. */
static int is_comparison(const json *found) {
    static const char *const keys[] = {"examples", "draws", "probs", "mean", "std", "nll", NULL};
    if (!is_object(found) || has_of(found, keys) != json_count(found)) return 0;
    for (int k = 0; keys[k]; k++) {
        const json *value = json_get(found, keys[k]);
        if (k < 2 && !(is_count(value) && json_number(value) <= MOST_GONE)) return 0;
        if (k < 2 || !value) continue;
        if (json_kind(value) != JSON_REAL || !(fabs(json_number(value)) <= MOST_APART)) return 0;
    }
    return 1;
}

/* Places, and the draws that were learned from. */
static int is_one_pass(const json *found) {
    static const char *const keys[] = {
        "places", "last_variance", "draws", "estimator", "gone", "likelihood", "compared", NULL,
    };
    const json *places = json_get(found, "places"), *last = json_get(found, "last_variance");
    const json *gone = json_get(found, "gone");
    if (!is_object(found) || has_of(found, keys) != json_count(found)) return 0;
    if (!are_all(places, is_place) || json_kind(last) != JSON_BOOL) return 0;
    if (json_number(last) == 1 && !json_count(places)) return 0;
    if (!is_count(json_get(found, "draws")) || !is_estimator(json_get(found, "estimator"))) return 0;
    if (gone && (json_count(gone) != json_count(places) || !are_all(gone, is_gone))) return 0;
    return is_missing_or(found, "likelihood", is_likelihood) && is_missing_or(found, "compared", is_comparison);
}

/* Whether a field is null, not there, or good. */
static int may_be(const json *model, const char *key, int (*good)(const json *)) {
    const json *node = json_get(model, key);
    return is_null(node) || good(node);
}

static int are_names(const json *node) { return are_all(node, is_text); }

/* From 10^-6 to 10^6. */
static int is_factor(const json *node) {
    return is_positive(node) && json_number(node) >= 1e-6 && json_number(node) <= 1e6;
}

/* How the prior came about. */
static int is_prior(const json *node) {
    static const char *const words[] = {"learned", "fixed", NULL};
    return is_among(node, words, 2);
}

static int is_size(const json *node) {
    return json_kind(node) == JSON_WHOLE && json_number(node) >= 0 && json_number(node) <= MOST_GONE;
}

/* Whether all values of an object are of a kind. */
static int values_are(const json *object, int (*good)(const json *)) {
    if (!is_object(object)) return 0;
    for (uint32_t k = 0; k < json_count(object); k++) {
        if (!good(json_at(object, k))) return 0;
    }
    return 1;
}

/* {name: size} */
static int are_sizes(const json *found) { return values_are(found, is_size); }

/* Sizes that modules have since some of their units were taken out. */
static int is_shrunk(const json *found) { return values_are(found, are_sizes); }

static int is_truth(const json *node) { return json_kind(node) == JSON_BOOL; }

/* The digest of another network, and how many of its tensors the file lacks. */
static int is_base(const json *found) {
    const char *digest = json_text(json_get(found, "sha256"));
    return is_object(found) && json_count(found) == 2 && is_count(json_get(found, "tensors"))
        && digest && strlen(digest) == 64 && strspn(digest, "0123456789abcdef") == 64;
}

/* Every field of a closed table; unknown ones are passed over. */
int model_check(reading *r, const json *model) {
    static const struct { const char *key; int (*good)(const json *); } fields[] = {
        {"likelihood", is_likelihood}, {"estimator", is_estimator}, {"class_names", are_names},
        {"preprocess", is_object}, {"input_dims", is_count}, {"network", is_network}, {"prior", is_prior},
        {"beta", is_share}, {"decay_std", is_std}, {"training", is_training}, {"temperature", is_positive},
        {"moments_factor", is_factor}, {"conformal", is_conformal}, {"one_pass", is_one_pass},
        {"shrunk", is_shrunk}, {"one_law", is_truth}, {"base", is_base},
    };
    const json *keeps = json_get(model, "keeps_dropout");
    if (!is_object(model)) return refuse(r, "the description's model is not an object");
    for (size_t k = 0; k < sizeof fields / sizeof *fields; k++) {
        if (!may_be(model, fields[k].key, fields[k].good))
            return refuse(r, "the description's model.%s is not of the right kind", fields[k].key);
    }
    if (keeps && !is_truth(keeps))
        return refuse(r, "the description's model.keeps_dropout is no truth value");
    return 0;
}
