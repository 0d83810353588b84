/* engine/runs.h: runs of integers out of the bytes that they were coded to. */
#ifndef POCKET_RUNS_H
#define POCKET_RUNS_H
#include "reading.h"

enum { MOST_KNOWN = 1 << 13 };
#define MOST_INTEGER ((int64_t)1 << 52)   /* larger ones are not exact as doubles */

typedef struct counted {       /* a value, and how often it was seen; or a rank, and whose it is */
    int64_t value, count;
} counted;

typedef struct statistics {    /* which values were seen, and how often: `known` rises */
    counted known[MOST_KNOWN];
    uint32_t size;
    int64_t fresh, length;     /* of the block before: values that were new, and all */
    uint32_t share[MOST_KNOWN + 1], start[MOST_KNOWN + 2];  /* of 2^16; the last is an escape's */
    counted rank[MOST_KNOWN + 1];
    counted *merged;           /* room for `room` values */
    uint32_t room;
} statistics;

typedef struct runs {
    reading *r;
    statistics *seen;
    uint64_t *state;
    uint32_t lanes, words;     /* words that are left */
    const uint8_t *word, *literal, *literals_end, *bits;
    uint64_t bit, bits_size;
    int smooth;                /* 1: values are tokens with open bits */
    uint64_t asked, left;      /* symbols of all runs so far; of this run not yet decoded */
    uint32_t step;             /* size of the next block, before it is rounded up */
    int64_t *block, *fresh;
    uint16_t *by_slot;
    uint32_t have, at, room;
} runs;

void statistics_begin(statistics *seen);
int statistics_learn(reading *r, statistics *seen, int64_t *fresh, uint32_t count, uint32_t length);
void statistics_share(statistics *seen);

int runs_open(reading *r, const uint8_t *bytes, uint64_t size, int smooth, runs *out);
int runs_begin(runs *all, uint64_t length);
int runs_more(runs *all);                     /* decodes the next block */
int runs_value(runs *all, int64_t *value);    /* of a token with its open bits */
int runs_finish(runs *all);
int varint(reading *r, const uint8_t **at, const uint8_t *end, int64_t *value);

/* The next integer of the run, which has one. */
static inline int runs_next(runs *all, int64_t *value) {
    if (all->at == all->have) TRY(runs_more(all));
    *value = all->block[all->at++];
    return all->smooth ? runs_value(all, value) : 0;
}

/* The next one, if it lies within these bounds. */
static inline int runs_within(runs *all, int64_t least, int64_t most, int64_t *value) {
    TRY(runs_next(all, value));
    return *value < least || *value > most ? refuse(all->r, "a number does not fit its type") : 0;
}
#endif
