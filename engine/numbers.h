/* engine/numbers.h: numbers of all types, and exponentials that are the same everywhere. */
#ifndef POCKET_NUMBERS_H
#define POCKET_NUMBERS_H
#include "layout.h"

typedef struct ranges {        /* of the multiples k of log-stds: runs of means go by them */
    int count;
    int64_t low[9];            /* range i has the k from low[i] to low[i + 1] - 1 */
    double step;
    double *known;             /* exp(k step) from low[0] on, 0 where not yet known; NULL: no table */
} ranges;

int is_finite(double value);
float single_of(double value);     /* the nearest float32, also beyond the largest: infinite */
float half_value(uint16_t bits);
double real_at(const array *a, uint64_t place);
int64_t whole_at(const array *a, uint64_t place);  /* of integers and bool */
int ranges_of(reading *r, const int64_t *k, uint64_t count, double step, ranges *out);
double exp_of(const ranges *own, int64_t k);
#endif
