/* engine/sha256.c: SHA-256, by the letter of FIPS 180-4. */
#include "bytes.h"
#include <string.h>

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

/* ROTR of section 3.2. */
static uint32_t turned(uint32_t x, int by) { return x >> by | x << (32 - by); }

/* One block of 64 bytes (section 6.2.2). */
static void take_block(uint32_t *state, const uint8_t *bytes) {
    uint32_t w[64], v[8];
    for (int t = 0; t < 16; t++)
        w[t] = (uint32_t)bytes[4 * t] << 24 | (uint32_t)bytes[4 * t + 1] << 16 | (uint32_t)bytes[4 * t + 2] << 8
             | bytes[4 * t + 3];
    for (int t = 16; t < 64; t++) {
        uint32_t x = w[t - 15], y = w[t - 2];
        w[t] = w[t - 16] + w[t - 7] + (turned(x, 7) ^ turned(x, 18) ^ x >> 3);
        w[t] += turned(y, 17) ^ turned(y, 19) ^ y >> 10;
    }
    memcpy(v, state, sizeof v);
    for (unsigned t = 0; t < 64; t++) {  /* a stands at -t mod 8, and the others behind it */
        uint32_t a = v[-t & 7], b = v[(1 - t) & 7], c = v[(2 - t) & 7], *d = v + ((3 - t) & 7);
        uint32_t e = v[(4 - t) & 7], f = v[(5 - t) & 7], g = v[(6 - t) & 7], *h = v + ((7 - t) & 7);
        uint32_t one = *h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & f) ^ (~e & g)) + K[t] + w[t];
        uint32_t two = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        *d += one;
        *h = one + two;
    }
    for (int k = 0; k < 8; k++) state[k] += v[k];
}

/* The first hash value (section 5.3.3). */
void sha256_begin(sha256 *digest) {
    static const uint32_t first[8] = {
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
    };
    memcpy(digest->state, first, sizeof first);
    digest->size = 0;
}

/* Whole blocks at once; what is left of one is held. */
void sha256_add(sha256 *digest, const uint8_t *bytes, size_t size) {
    while (size) {
        size_t held = digest->size % 64, part = size < 64 - held ? size : 64 - held;
        if (part == 64) {
            take_block(digest->state, bytes);
        } else {
            memcpy(digest->held + held, bytes, part);
            if (held + part == 64) take_block(digest->state, digest->held);
        }
        digest->size += part;
        bytes += part;
        size -= part;
    }
}

/* Ends the message with a bit, zeros and its length in bits. */
void sha256_hex(sha256 *digest, char *text) {
    uint64_t bits = 8 * digest->size;
    uint8_t end[72] = {0x80}, length[8];
    size_t zeros = (119 - digest->size % 64) % 64;
    for (int k = 0; k < 8; k++) length[k] = (uint8_t)(bits >> (56 - 8 * k));
    sha256_add(digest, end, 1 + zeros);
    sha256_add(digest, length, 8);
    for (int k = 0; k < 64; k++) text[k] = "0123456789abcdef"[digest->state[k / 8] >> (28 - 4 * (k % 8)) & 15];
    text[64] = 0;
}
