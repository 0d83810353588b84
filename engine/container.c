/* engine/container.c: header, checksum, description and the places of the sections. */
#include "container.h"
#include "bytes.h"
#include <stdlib.h>
#include <string.h>

enum { VERSION = 3, DIGITS = 64, LONGEST_PROGRAM = 1 << 16 };
enum { MOST_TEXT = 16000000, MOST_ANYWAY = 1 << 16, PER_BYTE = 16 };  /* bytes of text, also per byte of DEFLATE */

/* A whole number from 0 to the size of the file. */
static int place_of(const json *node, uint64_t size, uint64_t *place) {
    double number = json_number(node);
    if (json_kind(node) > JSON_WHOLE || !(number >= 0 && number <= (double)size)) return 0;
    *place = (uint64_t)number;
    return 1;
}

/* By where a section begins; of the same place empty ones first. */
static int by_place(const void *one, const void *other) {
    const section *a = *(const section *const *)one, *b = *(const section *const *)other;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return (a->size > b->size) - (a->size < b->size);
}

/* One entry of the header: a row of bytes. Versions below 3 may have other entries. */
static int entry_of(reading *r, const json *entry, const uint8_t *rest, uint64_t size, section *found) {
    const json *pair = json_get(entry, "data_offsets");
    uint64_t begin, end;
    if (json_kind(pair) != JSON_LIST || json_count(pair) != 2 || !place_of(json_at(pair, 0), size, &begin)
        || !place_of(json_at(pair, 1), size, &end) || begin > end)
        return refuse(r, "not a safetensors file: a section does not say where it is");
    found->name = json_key(entry);
    found->bytes = rest + begin;
    found->size = end - begin;
    return 0;
}

/* All sections; they cover what is behind the header without gap or overlap. */
static int entries_of(reading *r, const json *header, const uint8_t *rest, uint64_t size, container *out) {
    section **rising;
    const uint8_t *end = rest;
    TAKE(decoded, out->sections, json_count(header));
    TAKE(brief, rising, json_count(header));
    for (uint32_t k = 0; k < json_count(header); k++) {
        const json *entry = json_at(header, k);
        if (!strcmp(json_key(entry), "__metadata__")) continue;
        rising[out->count] = out->sections + out->count;
        TRY(entry_of(r, entry, rest, size, out->sections + out->count++));
    }
    qsort(rising, out->count, sizeof *rising, by_place);
    for (uint32_t k = 0; k < out->count; k++) {
        if (rising[k]->bytes != end) return refuse(r, "not a safetensors file, or cut short");
        end += rising[k]->size;
    }
    return end == rest + size ? 0 : refuse(r, "not a safetensors file, or cut short");
}

/* Whether every section is a row of as many bytes as it has. */
static int rows_check(reading *r, const json *header, const container *file) {
    for (uint32_t k = 0; k < file->count; k++) {
        const json *entry = json_get(header, file->sections[k].name), *shape = json_get(entry, "shape");
        const char *type = json_text(json_get(entry, "dtype"));
        r->section = file->sections[k].name;
        if (!type || strcmp(type, "U8") || json_kind(shape) != JSON_LIST || json_count(shape) != 1
            || json_number(json_at(shape, 0)) != (double)file->sections[k].size)
            return refuse(r, "it is no row of bytes");
    }
    r->section = NULL;
    return 0;
}

/* Where the checksum stands in the header; NULL: nowhere, or twice. */
static const uint8_t *digest_in(const uint8_t *head, size_t size, const char *digest) {
    static const char before[] = "\\\"sha256\\\":\\\"", behind[] = "\\\"";
    enum { BEFORE = sizeof before - 1, ALL = BEFORE + DIGITS + sizeof behind - 1 };
    const uint8_t *found = NULL;
    for (size_t at = 0; at + ALL <= size; at++) {
        const uint8_t *here = memchr(head + at, '\\', size - at);
        if (!here || (at = (size_t)(here - head)) + ALL > size) break;
        if (memcmp(here, before, BEFORE) || memcmp(here + BEFORE, digest, DIGITS)
            || memcmp(here + BEFORE + DIGITS, behind, sizeof behind - 1)) continue;
        if (found) return NULL;
        found = here + BEFORE;
    }
    return found;
}

/* The SHA-256 of the whole file, with the digest's own 64 characters as zeros. */
static int checksum_check(reading *r, const uint8_t *bytes, size_t size, size_t head, const char *digest) {
    char zeros[DIGITS], computed[DIGITS + 1];
    sha256 whole;
    int known = digest && strlen(digest) == DIGITS && strspn(digest, "0123456789abcdef") == DIGITS;
    const uint8_t *place = known ? digest_in(bytes, head, digest) : NULL;
    if (!place) return refuse(r, "the description has no checksum of 64 hexadecimal digits");
    memset(zeros, '0', DIGITS);
    sha256_begin(&whole);
    sha256_add(&whole, bytes, (size_t)(place - bytes));
    sha256_add(&whole, (const uint8_t *)zeros, DIGITS);
    sha256_add(&whole, place + DIGITS, size - (size_t)(place - bytes) - DIGITS);
    sha256_hex(&whole, computed);
    if (memcmp(computed, digest, DIGITS))
        return refuse(r, "the checksum does not fit: the file was damaged or changed; copy it anew");
    return 0;
}

/* Takes the section of this name out of the row; 0: it is not there. */
static int taken_out(container *file, const char *name, section *found) {
    for (uint32_t k = 0; k < file->count; k++) {
        if (strcmp(file->sections[k].name, name)) continue;
        *found = file->sections[k];
        memmove(file->sections + k, file->sections + k + 1, (--file->count - k) * sizeof *found);
        return 1;
    }
    return 0;
}

/* Whether an object has no keys but these. */
static int has_only(const json *object, const char *const *keys, int count) {
    for (uint32_t k = 0; k < json_count(object); k++) {
        int known = 0;
        for (int i = 0; i < count; i++) known |= !strcmp(json_key(json_at(object, k)), keys[i]);
        if (!known) return 0;
    }
    return 1;
}

/* The facts with those of the section `description`; neither may speak for the other. */
static int join_facts(reading *r, const json *first, container *file) {
    static const char *const here[] = {"version", "sha256", "model", "members"};
    static const char *const there[] = {"posteriors", "tables", "arrays", "sections"};
    section found;
    const json *more;
    const uint8_t *text;
    size_t length;
    if (!taken_out(file, "description", &found) || found.size > 2 * MOST_TEXT)
        return refuse(r, "section description is missing or too long");
    uint64_t most = PER_BYTE * found.size;
    most = most < MOST_ANYWAY ? MOST_ANYWAY : most > MOST_TEXT ? MOST_TEXT : most;
    r->section = "description";
    TRY(inflated(r, found.bytes, (size_t)found.size, (size_t)most, &text, &length));
    if (!utf8_is_good(text, length)) return refuse(r, "it is no text");
    TRY(json_read(r, text, length, &more));
    r->section = NULL;
    if (json_kind(more) != JSON_OBJECT || !has_only(first, here, 4) || !has_only(more, there, 4))
        return refuse(r, "the description says something unknown or in the wrong place");
    return json_merged(r, first, more, &file->facts);
}

/* Version 3, or plain words. */
static int version_check(reading *r, const json *version) {
    double number = json_number(version);
    if (json_kind(version) == JSON_WHOLE && number == VERSION) return 0;
    if (json_kind(version) == JSON_WHOLE && (number == 1 || number == 2))
        return refuse(r, "this file has version %.0f, which only the library itself reads: save it anew", number);
    return refuse(r, "this file has another version than %d: use a reader as new as its writer", VERSION);
}

/* The program, copied: the caller may give the bytes back. */
static int program_of(reading *r, container *file) {
    section found;
    uint8_t *copy;
    if (!taken_out(file, "program", &found)) return 0;
    if (found.size > LONGEST_PROGRAM) return refuse(r, "section program has more than %d bytes", LONGEST_PROGRAM);
    TAKE(kept, copy, found.size);
    if (found.size) memcpy(copy, found.bytes, (size_t)found.size);
    file->program = copy;
    file->program_size = (size_t)found.size;
    return 0;
}

/* Header, checksum, version, description and program, in the order in which they can be believed. */
int container_read(reading *r, const uint8_t *bytes, size_t size, container *out) {
    uint64_t head = 0;
    const json *header, *facts;
    if (size < 8) return refuse(r, "not a safetensors file, or cut short");
    for (int k = 0; k < 8; k++) head |= (uint64_t)bytes[k] << 8 * k;
    if (head > MOST_TEXT || head > size - 8) return refuse(r, "not a safetensors file, or cut short");
    if (!utf8_is_good(bytes + 8, (size_t)head)) return refuse(r, "not a safetensors file: its header is no text");
    TRY(json_read(r, bytes + 8, (size_t)head, &header));
    out->size = size;
    const char *text = json_text(json_get(json_get(header, "__metadata__"), "pocketbayes"));
    if (!text) return refuse(r, "a safetensors file, but not one of pocketbayes: it has no description");
    TRY(json_read(r, (const uint8_t *)text, strlen(text), &facts));
    if (json_kind(facts) != JSON_OBJECT) return refuse(r, "the description is not a JSON object");
    head += 8;
    TRY(entries_of(r, header, bytes + head, size - head, out));
    TRY(checksum_check(r, bytes, size, (size_t)head, json_text(json_get(facts, "sha256"))));
    TRY(version_check(r, json_get(facts, "version")));
    TRY(rows_check(r, header, out));
    TRY(join_facts(r, facts, out));
    return program_of(r, out);
}
