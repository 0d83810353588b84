/* engine/statistics.c: frequencies that the reader learns as the writer did (docs/format.md, Frequencies). */
#include "runs.h"
#include <stdlib.h>
#include <string.h>

enum { TOTAL = 1 << 16, REMEMBERED = 1 << 8 };

/* Rising; of `counted` by its first field. */
static int by_value(const void *one, const void *other) {
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

/* The largest counts first, of equal ones the smaller value. */
static int by_count(const void *one, const void *other) {
    const counted *a = one, *b = other;
    if (a->count != b->count) return a->count < b->count ? 1 : -1;
    return (a->value > b->value) - (a->value < b->value);
}

/* How much all counts are. */
static int64_t total_of(const statistics *seen) {
    int64_t total = 0;
    for (uint32_t k = 0; k < seen->size; k++) total += seen->known[k].count;
    return total;
}

/* A run begins: counts are scaled down to 2^8, and values of count 0 forgotten. */
void statistics_begin(statistics *seen) {
    int64_t total = total_of(seen);
    uint32_t kept = 0;
    if (total <= REMEMBERED) return;
    for (uint32_t k = 0; k < seen->size; k++) {
        counted one = {seen->known[k].value, seen->known[k].count * REMEMBERED / total};
        if (one.count) seen->known[kept++] = one;
    }
    seen->size = kept;
}

/* Known and new values in one rising row; returns their number. */
static uint32_t merge(statistics *seen, const int64_t *fresh, uint32_t count) {
    uint32_t size = 0, old = 0;
    for (uint32_t k = 0; k < count;) {
        while (old < seen->size && seen->known[old].value < fresh[k]) seen->merged[size++] = seen->known[old++];
        counted one = {fresh[k], 0};
        if (old < seen->size && seen->known[old].value == fresh[k]) one = seen->known[old++];
        for (; k < count && fresh[k] == one.value; k++) one.count++;
        seen->merged[size++] = one;
    }
    while (old < seen->size) seen->merged[size++] = seen->known[old++];
    return size;
}

/* Of too many values those of the largest counts, again in rising order. */
static uint32_t keep_frequent(statistics *seen, uint32_t size) {
    if (size <= MOST_KNOWN) return size;
    qsort(seen->merged, size, sizeof *seen->merged, by_count);
    qsort(seen->merged, MOST_KNOWN, sizeof *seen->merged, by_value);
    return MOST_KNOWN;
}

/* Behind a block: its values that were escapes; the others have been counted in `known` already. */
int statistics_learn(reading *r, statistics *seen, int64_t *fresh, uint32_t count, uint32_t length) {
    seen->fresh = 0;
    seen->length = length;
    if (!count) return 0;
    if (seen->room < MOST_KNOWN + count) {
        seen->room = MOST_KNOWN + 2 * count;
        TAKE(brief, seen->merged, seen->room);
    }
    qsort(fresh, count, sizeof *fresh, by_value);
    uint32_t size = merge(seen, fresh, count);
    seen->fresh = size - seen->size;
    seen->size = keep_frequent(seen, size);
    memcpy(seen->known, seen->merged, seen->size * sizeof *seen->known);
    return 0;
}

/* Gives the `missing` largest ranks 1 more each, or takes 1 from them; of equal ones the first come first. */
static void give(statistics *seen, uint32_t size, uint32_t missing, int by) {
    counted *rank = seen->rank;
    qsort(rank, size, sizeof *rank, by_count);
    for (uint32_t k = 0; k < missing; k++) seen->share[rank[k].value] += (uint32_t)by;
}

/* Takes from the largest shares above 1 what is too much, 1 each in every round. */
static void take_back(statistics *seen, uint32_t excess) {
    counted *rank = seen->rank;
    while (excess) {
        uint32_t size = 0;
        for (uint32_t k = 0; k <= seen->size; k++) {
            counted one = {k, seen->share[k]};
            if (one.count > 1) rank[size++] = one;
        }
        uint32_t part = excess < size ? excess : size;
        if (part < size) give(seen, size, part, -1);
        else for (uint32_t k = 0; k < size; k++) seen->share[rank[k].value]--;
        excess -= part;
    }
}

/* Before a block: shares of 2^16 in proportion to the counts and the escape's, by largest remainders. */
void statistics_share(statistics *seen) {
    counted *rank = seen->rank;
    int64_t total = total_of(seen), escape = 1 + seen->fresh * total / (2 * seen->length), missing = TOTAL;
    total += escape;
    for (uint32_t k = 0; k <= seen->size; k++) {
        int64_t scaled = TOTAL * (k < seen->size ? seen->known[k].count : escape), share = scaled / total;
        if (share < 1) share = 1;
        seen->share[k] = (uint32_t)share;
        rank[k].value = k;
        rank[k].count = scaled - share * total;
        missing -= share;
    }
    if (missing > 0) give(seen, seen->size + 1, (uint32_t)missing, 1);
    if (missing < 0) take_back(seen, (uint32_t)-missing);
    seen->start[0] = 0;
    for (uint32_t k = 0; k <= seen->size; k++) seen->start[k + 1] = seen->start[k] + seen->share[k];
}
