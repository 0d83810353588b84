/* engine/inflate.c: DEFLATE (RFC 1951), with the verdicts of the usual reader of it. */
#include "bytes.h"
#include <string.h>

enum { LONGEST_CODE = 15, LITERALS = 288, DISTANCES = 32, END = 256 };

typedef struct bits {
    reading *r;
    const uint8_t *at, *end;
    uint32_t held;
    int count, fault;          /* fault: the bytes ended too early */
    uint8_t *text;
    size_t length, room, most;
} bits;

typedef struct code {          /* a canonical prefix code */
    uint16_t count[LONGEST_CODE + 1];  /* of symbols, by their length */
    uint16_t symbol[LITERALS];         /* by length, then by number */
} code;

/* What is said of any fault in the bytes. */
static int wrong(bits *b) { return refuse(b->r, "it is not DEFLATE, or cut short"); }

/* The next bits, the lowest first; none are left: 0, and a fault. */
static uint32_t take(bits *b, int count) {
    while (b->count < count) {
        if (b->at == b->end) {
            b->fault = 1;
            return 0;
        }
        b->held |= (uint32_t)*b->at++ << b->count;
        b->count += 8;
    }
    uint32_t value = b->held & ((1u << count) - 1);
    b->held >>= count;
    b->count -= count;
    return value;
}

/* A code of these lengths. Says how many codes are left over: none of a good one; below 0: too few. */
static int code_of(code *made, const uint8_t *lengths, int symbols) {
    uint16_t place[LONGEST_CODE + 1] = {0};
    int left = 1;
    memset(made->count, 0, sizeof made->count);
    for (int k = 0; k < symbols; k++) made->count[lengths[k]]++;
    made->count[0] = 0;
    for (int size = 1; size <= LONGEST_CODE; size++) {
        left = 2 * left - made->count[size];
        if (left < 0) return left;
        if (size > 1) place[size] = (uint16_t)(place[size - 1] + made->count[size - 1]);
    }
    for (int k = 0; k < symbols; k++) {
        if (lengths[k]) made->symbol[place[lengths[k]]++] = (uint16_t)k;
    }
    return left;
}

/* The next symbol; -1: no code stands here. */
static int symbol_of(bits *b, const code *known) {
    int value = 0, first = 0, place = 0;
    for (int size = 1; size <= LONGEST_CODE; size++) {
        value |= (int)take(b, 1);
        if (b->fault) return -1;
        if (value - first < known->count[size]) return known->symbol[place + value - first];
        place += known->count[size];
        first = (first + known->count[size]) << 1;
        value <<= 1;
    }
    return -1;
}

/* Room for so many bytes more. */
static int room_for(bits *b, size_t count) {
    reading *r = b->r;
    if (count > b->most - b->length) return refuse(r, "it is longer than %zu bytes, the most for its size", b->most);
    if (b->length + count <= b->room) return 0;
    size_t room = 2 * (b->length + count);
    uint8_t *larger;
    TAKE(brief, larger, room);
    if (b->length) memcpy(larger, b->text, b->length);
    b->text = larger;
    b->room = room;
    return 0;
}

/* Bytes as they stand, behind their number and its complement (section 3.2.4). */
static int stored_block(bits *b) {
    b->held = 0;
    b->count = 0;
    if (b->end - b->at < 4) return wrong(b);
    size_t size = (size_t)(b->at[0] | b->at[1] << 8), check = (size_t)(b->at[2] | b->at[3] << 8);
    b->at += 4;
    if (size != (check ^ 0xFFFF) || (size_t)(b->end - b->at) < size) return wrong(b);
    TRY(room_for(b, size));
    memcpy(b->text + b->length, b->at, size);
    b->at += size;
    b->length += size;
    return 0;
}

/* A match: `length` symbols from `distance` back on, which may run into themselves. */
static int match_of(bits *b, int symbol, const code *distances) {
    static const uint16_t length_base[] = {
        3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115,
        131, 163, 195, 227, 258,
    };
    int rank = symbol - END - 1;
    if (rank >= 29) return wrong(b);
    int more = rank < 8 || rank == 28 ? 0 : rank / 4 - 1;
    size_t length = length_base[rank] + take(b, more);
    int far = symbol_of(b, distances);
    if (far < 0 || far >= 30) return wrong(b);
    more = far < 4 ? 0 : far / 2 - 1;
    size_t base = far < 4 ? (size_t)far + 1 : ((size_t)(2 + far % 2) << more) + 1;
    size_t distance = base + take(b, more);
    if (b->fault || distance > b->length) return wrong(b);
    TRY(room_for(b, length));
    for (; length; length--, b->length++) b->text[b->length] = b->text[b->length - distance];
    return 0;
}

/* Bytes and matches up to the end of the block. */
static int coded_block(bits *b, const code *literals, const code *distances) {
    for (;;) {
        int symbol = symbol_of(b, literals);
        if (symbol < 0) return wrong(b);
        if (symbol == END) return 0;
        if (symbol > END) {
            TRY(match_of(b, symbol, distances));
            continue;
        }
        TRY(room_for(b, 1));
        b->text[b->length++] = (uint8_t)symbol;
    }
}

/* A block with the codes of section 3.2.6. */
static int fixed_block(bits *b) {
    uint8_t lengths[LITERALS];
    code literals, distances;
    for (int k = 0; k < LITERALS; k++) lengths[k] = k < 144 ? 8 : k < 256 ? 9 : k < 280 ? 7 : 8;
    code_of(&literals, lengths, LITERALS);
    memset(lengths, 5, DISTANCES);
    code_of(&distances, lengths, DISTANCES);
    return coded_block(b, &literals, &distances);
}

/* The lengths of both codes, which are themselves coded (section 3.2.7). */
static int lengths_of(bits *b, const code *known, uint8_t *lengths, int wanted) {
    int have = 0;
    while (have < wanted) {
        int symbol = symbol_of(b, known);
        if (symbol < 0) return wrong(b);
        if (symbol < 16) {
            lengths[have++] = (uint8_t)symbol;
            continue;
        }
        if (symbol == 16 && !have) return wrong(b);
        uint8_t again = symbol == 16 ? lengths[have - 1] : 0;
        int times = symbol == 16 ? 3 + (int)take(b, 2) : symbol == 17 ? 3 + (int)take(b, 3) : 11 + (int)take(b, 7);
        if (b->fault || times > wanted - have) return wrong(b);
        while (times--) lengths[have++] = again;
    }
    return 0;
}

/* A code may leave some unused only if it has a single symbol, of one bit. */
static int is_good(const code *made, int left) {
    int symbols = 0;
    for (int size = 1; size <= LONGEST_CODE; size++) symbols += made->count[size];
    return left == 0 || (left > 0 && (symbols == 0 || (symbols == 1 && made->count[1] == 1)));
}

/* A block behind its own two codes (section 3.2.7). */
static int dynamic_block(bits *b) {
    static const uint8_t order[] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    uint8_t lengths[LITERALS + DISTANCES] = {0};
    code literals, distances;
    int many = (int)take(b, 5) + 257, far = (int)take(b, 5) + 1, own = (int)take(b, 4) + 4;
    if (b->fault || many > 286 || far > 30) return wrong(b);
    for (int k = 0; k < own; k++) lengths[order[k]] = (uint8_t)take(b, 3);
    if (b->fault || code_of(&literals, lengths, 19)) return wrong(b);
    memset(lengths, 0, sizeof lengths);
    TRY(lengths_of(b, &literals, lengths, many + far));
    if (!lengths[END] || !is_good(&literals, code_of(&literals, lengths, many))) return wrong(b);
    if (!is_good(&distances, code_of(&distances, lengths + many, far))) return wrong(b);
    return coded_block(b, &literals, &distances);
}

/* Block by block; nothing may be left behind the last. */
int inflated(reading *r, const uint8_t *bytes, size_t size, size_t most, const uint8_t **text, size_t *length) {
    bits b = {0};
    uint32_t last = 0;
    b.r = r;
    b.at = bytes;
    b.end = bytes + size;
    b.most = most;
    TRY(room_for(&b, most < 64 ? most : 64));
    while (!last) {
        last = take(&b, 1);
        uint32_t kind = take(&b, 2);
        if (b.fault || kind == 3) return wrong(&b);
        TRY(kind == 0 ? stored_block(&b) : kind == 1 ? fixed_block(&b) : dynamic_block(&b));
    }
    if (b.at != b.end) return refuse(r, "it ends too early or too late");
    *text = b.text;
    *length = b.length;
    return 0;
}
