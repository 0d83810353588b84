/* engine/reading.c: memory within a bound, and errors. */
#include "reading.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 14, ALIGNED = 16, LONGEST_ERROR = 256 };

struct block {
    block *next;
    size_t used, size;
    uint64_t align;
};

/* A new block in front of the others; NULL: there is no room for it. */
static block *block_of(arena *from, size_t size) {
    size_t whole = sizeof(block) + size;
    if (whole < size || whole > *from->room) return NULL;
    block *made = calloc(1, whole);
    if (!made) return NULL;
    *from->room -= whole;
    made->size = size;
    return made;
}

/* Small pieces share a block, which the list begins with; large ones have their own behind it. */
void *arena_take(arena *from, uint64_t count, size_t size) {
    if (count > (SIZE_MAX >> 1) / size) return NULL;
    size_t wanted = ((size_t)count * size + ALIGNED - 1) / ALIGNED * ALIGNED;
    block *first = from->last;
    if (!first || first->size - first->used < wanted) {
        block *made = block_of(from, wanted > PIECE / 2 ? wanted : PIECE);
        if (!made) return NULL;
        int behind = first && wanted > PIECE / 2;
        made->next = behind ? first->next : first;
        *(behind ? &first->next : &from->last) = made;
        first = made;
    }
    void *place = (unsigned char *)(first + 1) + first->used;
    first->used += wanted;
    return place;
}

/* Gives back a list of blocks. */
void blocks_free(block *last) {
    while (last) {
        block *next = last->next;
        free(last);
        last = next;
    }
}

/* Gives back all, and the room that it took. */
void arena_free(arena *whole) {
    for (block *b = whole->last; b; b = b->next) *whole->room += sizeof *b + b->size;
    blocks_free(whole->last);
    whole->last = NULL;
}

/* Control characters do not reach the terminal: names are anybody's. */
int refuse(reading *r, const char *format, ...) {
    int begin = 0;
    if (r->section) begin = snprintf(r->error, LONGEST_ERROR, "section %.80s: ", r->section);
    va_list parts;
    va_start(parts, format);
    vsnprintf(r->error + begin, (size_t)(LONGEST_ERROR - begin), format, parts);
    va_end(parts);
    for (char *c = r->error; *c; c++) {
        if ((unsigned char)*c < 32 || *c == 127) *c = '?';
    }
    return 1;
}

/* What is said where an arena has no room. */
int no_memory(reading *r) {
    return refuse(r, "it would take more memory than there is, or than a file of its size may");
}
