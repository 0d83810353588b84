/* engine/bytes.h: SHA-256 (FIPS 180-4) and DEFLATE (RFC 1951). */
#ifndef POCKET_BYTES_H
#define POCKET_BYTES_H
#include "reading.h"

typedef struct sha256 {
    uint32_t state[8];
    uint8_t held[64];
    uint64_t size;
} sha256;

void sha256_begin(sha256 *digest);
void sha256_add(sha256 *digest, const uint8_t *bytes, size_t size);
void sha256_hex(sha256 *digest, char *text);  /* 64 digits and the end */

/* The text of some bytes, which end with it; `most` bytes at most. */
int inflated(reading *r, const uint8_t *bytes, size_t size, size_t most, const uint8_t **text, size_t *length);
#endif
