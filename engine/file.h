/* engine/file.h: a .pocket file as weights. One arena holds all that was read. */
#ifndef POCKET_FILE_H
#define POCKET_FILE_H
#include <stddef.h>
#include <stdint.h>

/* Weights that a file may stand for, those that are not there included; 64 for each byte of it, if that is more. */
#ifndef POCKET_MOST_WEIGHTS
#define POCKET_MOST_WEIGHTS ((uint64_t)1 << 28)
#endif

enum { POCKET_CERTAIN, POCKET_NORMAL, POCKET_SPIKE_SLAB };  /* how a weight is drawn */
enum { POCKET_PER_WEIGHT, POCKET_PER_INPUT, POCKET_PER_OUTPUT };  /* what shares an inclusion variable */

typedef struct pocket_weight {
    const char *name;          /* its full name, as in the file */
    int rank;
    int32_t shape[8];
    uint32_t size;             /* numbers of the dense tensor */
    uint32_t count;            /* numbers stored here: = size if index == NULL */
    const uint32_t *index;     /* rising places in the flattened tensor; NULL: dense */
    const float *mean;         /* count */
    const float *std;          /* count; NULL: certain */
    const float *inclusion;    /* spike and slab: probabilities, one per weight (count, expanded from
                                  groups); the mean and std above are then those of the slab; else NULL */
    float spike_std;           /* narrow spike: its std; else 0 */
    int kind, group, group_axis;
    /* a shared weight (codebook): entry of each stored number, else NULL; an outlier or a blend, which
       has a Gaussian of its own, has a number of its own beyond the entries, unique in the codebook */
    const uint32_t *label;
    int codebook;              /* number of the codebook, -1: none */
    int draws_once;            /* 1: an entry is drawn once per pass, for all its weights */
} pocket_weight;

typedef struct json json;      /* engine/json.h: a parsed tree */

typedef struct pocket_file {
    void *arena;
    const json *facts;         /* the header's object: version, model, members, ... merged from both texts */
    uint32_t members;
    uint32_t count;
    pocket_weight *weights;    /* posteriors and state together, sorted by the bytes of their names */
    const uint8_t *program;    /* NULL: none */
    size_t program_size;
} pocket_file;

/* 0, or an error whose sentence is in `error` (256 bytes). Nothing is kept on an error. */
int pocket_read(const uint8_t *bytes, size_t size, pocket_file *out, char *error);
void pocket_free(pocket_file *file);
#endif
