/* engine/layout.h: the arrays of a file: whose they are, their types and shapes, their sections. */
#ifndef POCKET_LAYOUT_H
#define POCKET_LAYOUT_H
#include "container.h"

enum { FLOAT32, FLOAT64, FLOAT16, BFLOAT16, INT64, INT32, INT16, INT8, UINT8, BOOLEAN, TYPES };
enum { RAW, PLANES, INTEGERS, EXCEPTIONS, RISING, HALF, HALF_PLANES, STEPS, RELATIVE, CODINGS };
enum { MOST_AXES = 8, MOST_ROLES = 11 };

typedef struct array {
    const char *full, *family, *role;  /* full: posterior/NAME/ROLE; of the state state/NAME */
    int type, rank;
    uint64_t shape[MOST_AXES], size;
    const uint8_t *data;           /* when its section has been decoded; NULL: no numbers */
    struct array *next;            /* in its section */
} array;

typedef struct family {
    const char *name, *roles[MOST_ROLES + 1];
} family;

typedef struct owner {             /* a posterior, a codebook or a tensor of the state */
    const char *name;
    const family *kind;            /* NULL: state */
    array *arrays;                 /* in the order of the roles */
    int codebook;                  /* its number; -1: none */
} owner;

typedef struct layout {
    owner *posteriors, *tables, *state;
    uint32_t posterior_count, table_count, state_count;
    uint32_t members;
} layout;

size_t width_of(int type);
const char *type_name(int type);
char *joined(reading *r, const char *one, const char *two, const char *three);  /* with / in between */

int layout_read(reading *r, const container *file, layout *out);
int sections_fill(reading *r, container *file, layout *all);
int section_decode(reading *r, section *one, section *logs);
#endif
