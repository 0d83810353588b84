/* engine/inside.h: an open model. Buffers hold R examples at once, the example being the last axis:
   R is 1, or ROWS where buffers are small, so that all loops go over positions and examples alike. */
#ifndef POCKET_INSIDE_H
#define POCKET_INSIDE_H
#include "pocket.h"
#include "program.h"

#if defined(__AVX512F__)
enum { LANES = 16, TILE_OUTPUTS = 8, TILE_VECTORS = 3 };
#elif defined(__AVX__)
enum { LANES = 8, TILE_OUTPUTS = 4, TILE_VECTORS = 3 };
#else
enum { LANES = 4, TILE_OUTPUTS = 4, TILE_VECTORS = 2 };
#endif
enum { ROWS = 16, PACK = 16, SLACK = 8 * 16, MOST_SMALL = 8192 };

/* Instructions that multiply four 8-bit numbers and add the products: whether the compiler knows them.
   -DPOCKET_PLAIN_INT8 does without, slowly, for tests; -DPOCKET_NO_INT8 leaves all of it out. */
#if defined(POCKET_NO_INT8)
#elif defined(POCKET_PLAIN_INT8) || defined(__AVX512F__) || (defined(__ARM_FEATURE_DOTPROD) && defined(__aarch64__))
#define HAS_INT8
#elif defined(__AVX2__) && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#define HAS_INT8
#endif

typedef float lane __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

enum { MEAN, VARIANCE, SQUARE, DRAWN, PLANES };  /* of packed weights; SQUARE: that of the mean */

/* Weights of something linear. Dense: blocks of PACK outputs, then inputs; sparse: rows of what is there. */
typedef struct kernel {
    int32_t weight, bias;
    int groups, outputs, depth;          /* outputs and inputs of one output, of a group */
    int is_sparse, is_random, parts;     /* parts: of a sparse row, whose inputs are near each other */
    float *values[PLANES];
    uint32_t *offset;                    /* where inputs lie: of each of `depth`, or of each stored number */
    uint32_t *start;                     /* sparse: where parts of rows begin */
    float *scale, *shift[PLANES];        /* of all outputs: y scale + shift; a norm that is folded */
    float *gate;                         /* chances of outputs, or NULL */
    uint32_t *codes;                     /* means as 8 bits: blocks of PACK outputs, then fours of inputs; or NULL */
    int fours;                           /* words of one output */
    float *code_step;                    /* of all outputs, those of blocks: one unit, and the sum of a row */
    int32_t *code_total;
} kernel;

/* A weight as it is, where it is no packed one. */
typedef struct dense { const float *plane[PLANES]; float *owned[PLANES]; } dense;

typedef struct slot {                    /* a buffer, or a weight that stands where buffers may */
    shape shape;
    size_t size, mean, variance;         /* numbers of one example; places in the arena */
    int is_random;
    unsigned common;                     /* axes along which noise is the same: fully correlated */
} slot;

typedef struct member {
    uint32_t first;                      /* of its weights in the file */
    kernel *kernels;
    dense *dense;
} member;

typedef struct head {                    /* see pocketbayes.layers.spread */
    int features, hidden, outputs, places;
    float *linear, *bias, *squares;      /* rows of hidden units, then of distances, then of sizes */
    float *outer, *outer_bias, *unit, *slope;
    int32_t last_weight, last_bias;
} head;

struct pocket {
    const pocket_file *file;
    pocket_facts facts;
    pocket_options options;
    program program;
    uint32_t weights;                    /* of one member */
    int members, kind, kernels;
    member *member;
    slot *slots;                         /* of buffers, then of weights */
    int32_t *weight_slot;                /* by weight, -1: none */
    int slot_count, is_small, is_random;
    float *arena;
    size_t arena_size, scratch, own;     /* floats; places of working memory */
    int has_head;
    head head;
    double *work;                        /* where normals are made */
    float *draws, *normals, *row;        /* (S, ROWS, outputs) and working memory of answers */
    size_t outputs;                      /* numbers of the output */
    void **blocks;                       /* all that was allocated */
    int block_count, block_room;
    size_t memory;
    char no_moments[160];                /* why there are none; empty: there are */
    struct loaded *loaded;               /* the file, of a model that owns it */
    const pocket *source;                /* whose weights these are; NULL: its own */
    int no_whole_draws;                  /* 1: it has no room for those */
    int normals_made;                    /* from here on what a prediction changes: for how many draws they are */
    char error[256];
};

struct run {
    pocket *model;
    member *member;
    size_t lanes;                        /* R */
    int moments, drawn, plane;           /* the plane that moving operations move */
    uint64_t seed;
    int draw, failed;
    size_t first_row;
    float *to;                           /* of the first row of the first draw; of the next, `step` behind */
    size_t step;
};

/* Memory of a model; NULL is remembered as an error. */
void *take(pocket *m, size_t count, size_t size);

/* Of operands: their slot, numbers for all lanes, means, variances (NULL: certain). */
slot *slot_of(const run *r, int32_t operand);
size_t count_at(const run *r, int32_t operand);
float *mean_of(const run *r, int32_t operand);
float *variance_of(const run *r, int32_t operand);
float *plane_of(const run *r, int32_t operand);      /* the one that is moved */
const float *weight_of(const run *r, int32_t operand, int plane);  /* NULL: absent, or certain */
static inline float *scratch_of(const run *r) { return r->model->arena + r->model->scratch; }
static inline float *own_of(const run *r) { return r->model->arena + r->model->own; }

/* load.c */
void loaded_free(struct loaded *from);

/* packing.c */
void kernels_make(run *r, operation *op, const uint32_t *offsets);
void kernel_fill(run *r, const operation *op, int number, int plane);
void dense_make(run *r, int32_t operand);
void dense_fill(const run *r, int32_t operand, int plane);
int is_common(const pocket *m, const operation *op);

/* linear.c, convolutions.c */
void apply_rows(const run *r, const kernel *k, size_t rows, const float *m, const float *v, float *y, float *yv);
size_t linear_scratch(const pocket *m, const operation *op);   /* numbers of one example */
#ifdef __wasm__
#define parts_of(m, op, each) 1
#else
int parts_of(const pocket *m, const operation *op, uint32_t each);
#endif
void codes_make(pocket *m, kernel *k, int places);             /* int8.c: if they are asked for and worth it */
void conv_offsets(const pocket *m, const operation *op, uint32_t *offsets, uint32_t count);

/* draws.c */
float number_of(const pocket_weight *w, uint32_t place, int plane, const run *r, uint32_t number);
float uniform_of(uint64_t seed, uint64_t stream, uint64_t place);
void normals_at(float *z, uint64_t seed, uint64_t stream, const uint32_t *place, uint32_t first, int count);
void numbers_drawn(float *to, const pocket_weight *w, uint32_t first, int count, const run *r, uint32_t number);
void weights_draw(run *r);
void drop(const run *r, const operation *op, const float *x, float *y);
void plain_normals(float *z, int number, int dimensions);

/* normals.c; `work` has normals_room doubles */
size_t normals_room(int number, int dimensions);
void spread_normals(float *z, int number, int dimensions, double *work);

/* positions.c: which buffers are random, and along which axes noise is common; or why there is no rule. */
void moments_plan(pocket *m);

/* Functions of one number, by the code of their operation: y = f(x; a, b). */
typedef void (*each)(const float *x, float *y, size_t n, float a, float b);
each function_of(int code);
void quadrature(each f, int nodes, const float *m, const float *v, float *y, float *yv, size_t n, float a, float b);

/* moves.c: a walk over some sides, whose last go on in runs; places of each operand are steps times indices. */
typedef struct walk {
    int rank;
    size_t side[MOST_AXES + 9], step[3][MOST_AXES + 9], at[3], count[MOST_AXES + 9];
    size_t run;                          /* how long the last side is */
} walk;
void walk_begin(walk *w);                /* after rank, sides and steps are known: joins sides */
int walk_next(walk *w);

/* pass.c: inputs of up to R rows through all operations of one member. */
void pass(run *r, const float *const *inputs, size_t rows);

/* head.c, answers.c; 0, or an error in the model */
int head_plan(pocket *m);
void head_spread(const run *r, float *mean, float *variance);
void head_room(pocket *m);
int answers_plan(pocket *m);
void answers_room(pocket *m);
size_t output_width(const pocket *m);    /* outputs at each position */

/* All draws of one row: S numbers, `step` apart. */
typedef struct told { const float *x; size_t step; int draws, is_gaussian; } told;
int tell(const pocket *m, told d, size_t row, size_t rows, const pocket_ask *ask, const pocket_answer *a);  /* 1: it is finite */

/* quantiles.c */
enum { CATEGORICAL, BERNOULLI, GAUSSIAN, HETEROSCEDASTIC, STUDENT_T, POISSON, NEGATIVE_BINOMIAL, LIKELIHOODS };
float mixed_quantile(int how, double own, const float *location, const float *variance, int draws, double mean, double std, double share);

#define KERNELS(of) of(linear) of(conv) of(norm) of(layer_norm) of(group_norm) of(attention) of(matmul) of(pair) \
    of(reduce) of(softmax) of(max_pool) of(avg_pool) of(adaptive) of(unary) of(dropout) of(prelu) of(lstm) of(gru)
#define DECLARE(name) void mean_##name(run *r, const operation *op); void moments_##name(run *r, const operation *op);
KERNELS(DECLARE)
#undef DECLARE
void mean_embedding(run *r, const operation *op);
void mean_concat(run *r, const operation *op);
void mean_constant(run *r, const operation *op);
void mean_copy(run *r, const operation *op);         /* reshape */
void mean_permute(run *r, const operation *op);
void mean_slice(run *r, const operation *op);
void mean_pad(run *r, const operation *op);
void mean_expand(run *r, const operation *op);
void mean_upsample(run *r, const operation *op);
#endif
