/* engine/program.h: a program as a list of operations, and the one table of what they are. */
#ifndef POCKET_PROGRAM_H
#define POCKET_PROGRAM_H
#include "file.h"

enum { MOST_AXES = 8, MOST_OPERANDS = 5, MOST_LISTS = 4, ABSENT = INT32_MIN };

typedef struct shape {
    int rank;
    int64_t side[MOST_AXES];
} shape;

typedef struct run run;
typedef struct operation operation;
typedef struct checker checker;

/* One row of the table. Without a rule of moments, `mean` serves variances, too: it moves numbers. */
typedef struct row {
    int code;
    const char *name, *fields;
    const char *(*fit)(const checker *c, const operation *op, shape *out);  /* NULL, or what is wrong */
    void (*mean)(run *r, const operation *op);
    void (*moments)(run *r, const operation *op);
} row;

struct operation {
    const row *row;
    int result;                          /* the number of its buffer */
    int32_t x[MOST_OPERANDS];            /* buffers from 0 on; -1 - i: weight i; ABSENT */
    int32_t n[4];
    float r[2];
    struct { int count; int32_t at[MOST_AXES]; } l[MOST_LISTS];
    const int32_t *many;                 /* a list of operands */
    int many_count;
    const uint8_t *reals;                /* a list of reals, as bytes */
    int real_count;
    int operands;                        /* how many of x */
    /* planned when a model is opened */
    int skipped;                         /* its work is done by the operation before */
    int norm;                            /* the operation of a norm that is folded into it, -1: none */
    int first_kernel;                    /* -1, or the first of its packed weights */
};

typedef struct place { int32_t operand; int channels; } place;

typedef struct program {
    int inputs, operations, buffers, places, output;
    int whole[16];                       /* 1: an input of whole numbers */
    shape *shapes;                       /* of all buffers */
    operation *list;
    place *place;
    int32_t *pool;                       /* operands of lists */
} program;

struct checker {
    const program *program;
    const pocket_weight *weights;
    shape *weight_shapes;
    uint32_t count;
};

extern const row TABLE[];
extern const int TABLE_ROWS;

/* 0, or a sentence in `error`; a program must be freed in either case. */
int program_read(program *p, const uint8_t *bytes, size_t size, char *error);
int program_check(program *p, const pocket_weight *weights, uint32_t count, char *error);
void program_free(program *p);

const shape *shape_at(const checker *c, int32_t operand);
int64_t product(const int64_t *sides, int count);  /* of sides from 0 on; at most 2^62 */
int64_t numbers_of(const shape *s);
int same_shape(const shape *a, const shape *b);
const char *broadcast(const shape *a, const shape *b, shape *out);
int64_t products_of(const checker *c, const operation *op, const shape *out);

#define RULES(of) of(linear) of(conv) of(norm) of(layer_norm) of(group_norm) of(embedding) of(recurrent) \
    of(attention) of(matmul) of(pair) of(same) of(concat) of(reshape) of(permute) of(slice) of(pad) of(expand) \
    of(max_pool) of(avg_pool) of(adaptive) of(reduce) of(softmax) of(constant) of(dropout) of(upsample) of(prelu)
#define DECLARE(name) const char *fit_##name(const checker *c, const operation *op, shape *out);
RULES(DECLARE)
#undef DECLARE
#endif
