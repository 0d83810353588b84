/* engine/reading.h: what all parts of the reader share: memory within a bound, and errors. */
#ifndef POCKET_READING_H
#define POCKET_READING_H
#include <stddef.h>
#include <stdint.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the reader copies numbers as they stand in the file: it needs a little-endian machine"
#endif

typedef struct block block;
typedef struct arena {         /* memory that is given back all at once */
    block *last;
    uint64_t *room;            /* bytes that may still be taken, by all arenas together */
} arena;

typedef struct reading {       /* one file being read */
    arena kept;                /* what stays: facts, weights, program */
    arena decoded;             /* arrays of the file, until the weights are made of them */
    arena brief;               /* for one section, or one weight */
    uint64_t room;
    const char *section;       /* at fault if something is; NULL: none in particular */
    char *error;               /* 256 bytes */
} reading;

/* Zeros; never NULL for a `count` of 0. NULL: too many. */
void *arena_take(arena *from, uint64_t count, size_t size);
void arena_free(arena *whole);
void blocks_free(block *last);

/* Writes the sentence, with the section at fault; returns 1. */
int refuse(reading *r, const char *format, ...);
int no_memory(reading *r);

#define TRY(step) do { if (step) return 1; } while (0)
#define TAKE(from, place, count) \
    do { \
        (place) = arena_take(&r->from, (count), sizeof *(place)); \
        if (!(place)) return no_memory(r); \
    } while (0)
#endif
