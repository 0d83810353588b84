/* engine/weights.h: posteriors and state as weights. */
#ifndef POCKET_WEIGHTS_H
#define POCKET_WEIGHTS_H
#include "numbers.h"

typedef struct support {        /* where the stored numbers of a sparse tensor are */
    uint32_t count;
    uint64_t *rising;          /* place << 32 | number stored, by places; NULL: all, in their order */
    int is_dense;
} support;

const array *array_of(const owner *whose, const char *role);
int is_real(const array *a);
int is_scalar(const array *a, int type);
int shape_of(reading *r, const array *dimensions, pocket_weight *w);
int shape_from(reading *r, const array *dense, pocket_weight *w);
int places_of(reading *r, const owner *q, pocket_weight *w, support *out);
int index_of(reading *r, const support *where, pocket_weight *w);
uint32_t stored_at(const support *where, uint32_t number);

int shared_weight(reading *r, const owner *q, const owner *tables, uint32_t *own_labels, pocket_weight *w);
int state_weight(reading *r, const owner *tensor, pocket_weight *w);
int plain_weight(reading *r, const owner *q, pocket_weight *w);
int prior_check(reading *r, const owner *q);
#endif
