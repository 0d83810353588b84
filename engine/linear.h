/* engine/linear.h: what products of all kinds have in common. */
#ifndef POCKET_LINEAR_H
#define POCKET_LINEAR_H
#include "inside.h"
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
enum { WIDEST = 8, TILE = TILE_VECTORS * LANES, PITCH = WIDEST * LANES, TOGETHER = 16 };

/* Inputs as 8 bits, four in a word, one above the other; of each of R examples x = step (code - zero). */
typedef uint32_t four __attribute__((may_alias));
typedef struct codes {
    const four *words;
    float step[ROWS], inverse[ROWS];
    int32_t zero[ROWS];
} codes;

/* Where a linear operation reads and writes: columns are positions and examples. */
typedef struct layout {
    const float *in[3];                  /* means, second moments, variances; NULL: none */
    size_t group, pitch, columns;        /* inputs of a group; distance of two inputs; how many there are */
    size_t run, width;                   /* of every `run` columns, the first `width` are outputs */
    float *out, *out_variance;
    size_t output, step;                 /* distance of two outputs, of two columns */
    const codes *codes;                  /* in place of `in`, for a kernel of codes; distances are of words */
} layout;

/* Few numbers, for which a call would take longer. */
INLINE void copy_few(const float *from, float *to, size_t n)
{
#ifdef __wasm__                          /* where the page is to be small */
    memcpy(to, from, n * sizeof *to);
#else
    for (; n >= LANES; n -= LANES, from += LANES, to += LANES)
        *(lane *)to = *(const lane *)from;
    for (; n >= 4; n -= 4, from += 4, to += 4)
        memcpy(to, from, 4 * sizeof *to);
    for (; n > 0; n--)
        *to++ = *from++;
#endif
}

void multiply(const run *r, const kernel *k, const layout *at);

/* int8.c: inputs of a call, (groups, each, columns), as codes; products of those. */
#ifdef HAS_INT8
enum { HAS_CODES = 1 };
void encode(const float *x, size_t groups, size_t each, size_t columns, size_t lanes, four *to, codes *found);
void code_sums(const kernel *k, int group, int output, const layout *at, size_t column, int vectors, float *sum);
void code_column(const kernel *k, const layout *at);
#else
enum { HAS_CODES = 0 };
#define encode(...) (void)0
#define code_sums(...) (void)0
#define code_column(...) (void)0
#endif

/* m^2 + v, number by number; of a certain input m^2. */
const float *second_moments(const float *m, const float *v, size_t n, float *second);
#endif
