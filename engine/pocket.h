/* engine/pocket.h: from the weights of a file to predictions that know how sure they are. */
#ifndef POCKET_H
#define POCKET_H
#include "file.h"

typedef struct pocket pocket;  /* an open model; threads each need their own, see pocket_share */

/* What a file says of its model beside weights and program. */
typedef struct pocket_facts {
    const char *likelihood;    /* NULL: "categorical" */
    float temperature;         /* 0: none */
    float moments_factor;      /* 0: none */
    int is_local;              /* 1: estimator "lrt", noise of its own at every position */
    int keeps_dropout;
    const char *last_layer;    /* of a head with `last_variance`: the name of its last place; else NULL */
    const float *gone;         /* of a head: two numbers for each place; NULL: an old head without */
} pocket_facts;

typedef struct pocket_options {
    int most_draws;            /* of weights or of a Gaussian; 0: the mean only */
    int moments;               /* 1: plan for moments */
    int int8;                  /* 1: the mean by 8-bit products, where they are faster; other answers */
} pocket_options;

enum { POCKET_MEAN, POCKET_ONE_PASS, POCKET_MOMENTS, POCKET_WEIGHT };  /* estimators */
enum { POCKET_CLASSES, POCKET_LABELS, POCKET_VALUES };  /* kinds of answers */

typedef struct pocket_ask {
    int estimator;
    int draws;                 /* S; each member of an ensemble has as many, S in all or a few more */
    uint64_t seed;
    float level;               /* of the interval, e.g. 0.9 */
    const float *normals;      /* (S, outputs) that stand for a Gaussian; NULL: the engine's own */
} pocket_ask;

/* Where answers go, each NULL or room for all rows; the first (rows, *output shape). Classes lie
   along the first axis of an output; entropies are one for each example and position of those. */
typedef struct pocket_answer {
    float *outputs;            /* means of the network's outputs over draws */
    float *variances;          /* their variances over draws */
    float *probs, *entropy, *aleatoric, *epistemic;
    int32_t *label;
    float *mean, *std, *lower, *upper;
    float *samples;            /* (S, rows, *output shape): the network's outputs of each draw */
} pocket_answer;

/* 0, or a sentence in `error` (256 bytes): whether a program fits weights of these shapes. */
int pocket_check(const uint8_t *program, size_t size, const pocket_weight *weights, uint32_t count, char *error);

/* NULL and a sentence if the program is not one that can be run. The file must stay as long. */
pocket *pocket_open(const pocket_file *file, const pocket_facts *facts, const pocket_options *options, char *error);
void pocket_close(pocket *model);

/* The bytes of a file with a program, read and opened; owns all that it needs, the bytes may go.
   `pocket_again`: the same file once more, for a thread or by other options; must be closed first. */
pocket *pocket_load(const uint8_t *bytes, size_t size, const pocket_options *options, char *error);
pocket *pocket_again(const pocket *model, const pocket_options *options, char *error);

/* Another place to work with an open model, for a thread: it reads that one's weights and has memory of its
   own, for so many draws, of whole weights if `whole`. Must be closed first. */
pocket *pocket_share(const pocket *model, int most_draws, int whole, char *error);

/* What a model takes and gives: sides of an input (number >= 0) or of the output (-1); the rank. */
int pocket_shape(const pocket *model, int number, int32_t *sides);
int pocket_kind(const pocket *model);
int pocket_inputs(const pocket *model);                    /* how many */
int pocket_is_whole(const pocket *model, int number);      /* 1: an input of whole numbers */
int pocket_members(const pocket *model);
int pocket_has_random_weights(const pocket *model);        /* 0: one network, or dropout that stays on */
int pocket_int8(const pocket *model);                      /* layers whose products are of 8 bits */
int pocket_default(const pocket *model);  /* the estimator where none is named; the mean: nothing is random */

/* What the file says of its model (docs/format.md), as JSON text of all, or of one field such as
   "class_names", "preprocess", "conformal"; null if it is not there. Gives the length of the whole
   text, and writes what there is room for, with a 0 at the end. */
size_t pocket_fact(const pocket *model, const char *name, char *text, size_t room);
size_t pocket_memory(const pocket *model);  /* bytes held beside the file's */

/* Inputs (rows, *shape), row-major. 0, or an error: see pocket_error; an answer that is not finite is
   one. Allocates nothing. */
int pocket_predict(pocket *model, const float *const *inputs, int rows, const pocket_ask *ask,
                   const pocket_answer *answer);

/* Parts of a prediction, for threads: the same numbers bit for bit, however it is cut. Rows are all rows, and
   inputs and answers those of all. `pocket_rows` answers for `count` rows from the first on, a multiple of
   `pocket_together`. `pocket_draws` leaves some draws of whole weights in (S, rows, *output shape), which
   `pocket_tell` makes the answer of; they may be the samples of that answer. */
#ifndef __wasm__
int pocket_rows(pocket *model, const float *const *inputs, int rows, int first, int count, const pocket_ask *ask,
                const pocket_answer *answer);
int pocket_draws(pocket *model, const float *const *inputs, int rows, int first, int count, const pocket_ask *ask,
                 float *samples);
int pocket_tell(pocket *model, const float *samples, int rows, const pocket_ask *ask, const pocket_answer *answer);
int pocket_together(const pocket *model);
int pocket_number(const pocket *model, const pocket_ask *ask);  /* of draws that are made, of all members */
double pocket_work(const pocket *model);  /* multiplications of the mean of one example, about */
#endif
const char *pocket_error(const pocket *model);
#endif
