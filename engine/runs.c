/* engine/runs.c: rANS with many lanes (docs/format.md, 7). No number in the bytes is believed. */
#include "runs.h"
#include <string.h>

enum {
    FIRST_BLOCK = 16, LARGEST_BLOCK = 1 << 19, MOST_LANES = 1 << 20, PER_LANE = 1 << 16,
    SLOTS = 1 << 16, FEW = 2048, DIRECT = 16, MOST_TOKEN = 16 + 48 * 8,
};
#define EMPTY ((uint64_t)1 << 31)

/* Four bytes, little-endian. */
static uint32_t word_at(const uint8_t *at) {
    uint32_t word;
    memcpy(&word, at, 4);
    return word;
}

/* An integer in zigzag and LEB128, of ten bytes at most. */
int varint(reading *r, const uint8_t **at, const uint8_t *end, int64_t *value) {
    uint64_t whole = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (*at == end) return refuse(r, "an integer is cut short");
        uint64_t byte = *(*at)++;
        whole |= (byte & 127) << shift;
        if (byte >= 128) continue;
        uint64_t size = whole >> 1;  /* below 2^63 */
        *value = whole & 1 ? -(int64_t)size - 1 : (int64_t)size;
        return 0;
    }
    return refuse(r, "an integer has more than 64 bits");
}

/* Takes bytes off the front of what is left. */
static const uint8_t *cut(const uint8_t **at, uint64_t *left, uint64_t size) {
    const uint8_t *here = *at;
    if (size > *left) return NULL;
    *at += size;
    *left -= size;
    return here;
}

/* Lanes, words, literals and open bits, each where its size puts it. */
int runs_open(reading *r, const uint8_t *bytes, uint64_t size, int smooth, runs *out) {
    const uint8_t *head = cut(&bytes, &size, 12);
    runs all = {0};
    if (!head) return refuse(r, "its coded numbers are cut short");
    uint32_t literals = word_at(head + 8);
    all.r = r;
    all.smooth = smooth;
    all.lanes = word_at(head);
    all.words = word_at(head + 4);
    if (!all.lanes || all.lanes > MOST_LANES) return refuse(r, "its coded numbers have no lane, or too many");
    const uint8_t *states = cut(&bytes, &size, 8 * (uint64_t)all.lanes);
    all.word = states ? cut(&bytes, &size, 4 * (uint64_t)all.words) : NULL;
    all.literal = all.word ? cut(&bytes, &size, literals) : NULL;
    if (!all.literal) return refuse(r, "its coded numbers are cut short");
    all.literals_end = all.literal + literals;
    all.bits = bytes;
    all.bits_size = 8 * size;
    TAKE(brief, all.state, all.lanes);
    TAKE(brief, all.seen, 1);
    TAKE(brief, all.by_slot, SLOTS);
    memcpy(all.state, states, 8 * (size_t)all.lanes);
    all.seen->fresh = all.seen->length = 1;
    for (uint32_t k = 0; k < all.lanes; k++) {
        if (all.state[k] < EMPTY || all.state[k] >> 63) return refuse(r, "a coder's state is out of bounds");
    }
    *out = all;
    return 0;
}

/* The next run, of this length; open bits of the one before end with a whole byte. */
int runs_begin(runs *all, uint64_t length) {
    all->asked += length;
    if (length > (uint64_t)all->lanes * PER_LANE || all->asked > (uint64_t)all->lanes * PER_LANE)
        return refuse(all->r, "its coded numbers cannot be as many as it says");
    all->bit = (all->bit + 7) / 8 * 8;
    all->left = length;
    all->step = FIRST_BLOCK;
    all->have = all->at = 0;
    statistics_begin(all->seen);
    return 0;
}

/* Which symbol has this slot: the last one that starts there or before. */
static uint32_t symbol_at(const statistics *seen, uint32_t slot) {
    uint32_t low = 0, high = seen->size + 1;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (seen->start[middle] <= slot) low = middle;
        else high = middle;
    }
    return low;
}

/* The next symbol of a lane: x = f (x >> 16) + x mod 2^16 - s, and a word where x < 2^31. */
static int pop(runs *all, uint64_t *state, int by_table, uint32_t *symbol) {
    const statistics *seen = all->seen;
    uint64_t x = *state;
    uint32_t slot = (uint32_t)(x & (SLOTS - 1));
    *symbol = by_table ? all->by_slot[slot] : symbol_at(seen, slot);
    x = seen->share[*symbol] * (x >> 16) + slot - seen->start[*symbol];
    if (x < EMPTY) {
        if (!all->words) return refuse(all->r, "its coded numbers end too early");
        x = x << 32 | word_at(all->word);
        all->word += 4;
        all->words--;
    }
    *state = x;
    return 0;
}

/* Values of a block: known ones are counted at once, escapes are literals, noted in `fresh`. */
static int pop_block(runs *all, uint32_t count, uint32_t *fresh) {
    statistics *seen = all->seen;
    int by_table = count >= FEW;
    for (uint32_t k = 0; by_table && k <= seen->size; k++) {
        for (uint32_t slot = seen->start[k]; slot < seen->start[k + 1]; slot++) all->by_slot[slot] = (uint16_t)k;
    }
    for (uint32_t k = 0, lane = 0; k < count; k++) {
        uint32_t symbol;
        TRY(pop(all, all->state + lane, by_table, &symbol));
        if (symbol < seen->size) {
            all->block[k] = seen->known[symbol].value;
            seen->known[symbol].count++;
        } else {
            if (all->literal == all->literals_end) return refuse(all->r, "its coded numbers lack literals");
            TRY(varint(all->r, &all->literal, all->literals_end, all->block + k));
            if (all->block[k] <= -MOST_INTEGER || all->block[k] >= MOST_INTEGER)
                return refuse(all->r, "a number is too large");
            all->fresh[(*fresh)++] = all->block[k];
        }
        lane = lane + 1 == all->lanes ? 0 : lane + 1;
    }
    return 0;
}

/* A block, half as large again as the last, rounded up to a multiple of the lanes. */
int runs_more(runs *all) {
    reading *r = all->r;
    uint64_t count = (all->step + all->lanes - 1) / all->lanes * (uint64_t)all->lanes;
    uint32_t fresh = 0, grown = all->step * 3 / 2;
    if (count > all->left) count = all->left;
    if (!count) return refuse(r, "its coded numbers are fewer than it says");
    if (count > all->room) {
        all->room = 2 * (uint32_t)count;
        TAKE(brief, all->block, all->room);
        TAKE(brief, all->fresh, all->room);
    }
    statistics_share(all->seen);
    TRY(pop_block(all, (uint32_t)count, &fresh));
    TRY(statistics_learn(r, all->seen, all->fresh, fresh, (uint32_t)count));
    all->step = grown < LARGEST_BLOCK ? grown : LARGEST_BLOCK;
    all->left -= count;
    all->have = (uint32_t)count;
    all->at = 0;
    return 0;
}

/* Magnitudes below 16 are themselves; above, token 16 + 8 (e - 4) + three bits leaves e - 3 open. */
int runs_value(runs *all, int64_t *value) {
    int64_t token = *value, size = token < 0 ? -token : token;
    if (size < DIRECT) return 0;
    if (size >= MOST_TOKEN) return refuse(all->r, "a number is too large");
    int width = (int)((size - DIRECT) >> 3) + 1;
    if ((uint64_t)width > all->bits_size - all->bit) return refuse(all->r, "its coded numbers are cut short");
    uint64_t whole = 8 + (uint64_t)(size & 7);
    for (; width; width--, all->bit++) whole = whole << 1 | (all->bits[all->bit >> 3] >> (7 - (all->bit & 7)) & 1);
    *value = token < 0 ? -(int64_t)whole : (int64_t)whole;
    return 0;
}

/* Checks that all went in as it came out: nothing is left, every lane is at its beginning. */
int runs_finish(runs *all) {
    int good = !all->words;
    for (uint32_t k = 0; good && k < all->lanes; k++) good = all->state[k] == EMPTY;
    if (!good) return refuse(all->r, "its coded numbers do not end where they should");
    if (all->literal != all->literals_end || (all->bit + 7) / 8 * 8 != all->bits_size)
        return refuse(all->r, "its coded numbers have literals or extra bits too many");
    return 0;
}
