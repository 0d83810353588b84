/* engine/int8.c: products of 8-bit weights and 8-bit inputs, for processors that have an instruction for them. */
#include "linear.h"
#include <math.h>

#ifdef HAS_INT8
typedef int32_t whole __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* DOT: to each whole number the four products of a word of inputs and one of weights, -127 to 127. Inputs are 0
   to 255, or 128 less where the instruction wants a sign: GROUND of them, FLIP of the bits. */
#if defined(POCKET_PLAIN_INT8)
#define WITH_DOT
#define BYTE(word, j) ((word) << (24 - 8 * (j)) >> 24)
#define DOT(sum, x, w) ((sum) + BYTE(x, 0) * BYTE(w, 0) + BYTE(x, 1) * BYTE(w, 1) + BYTE(x, 2) * BYTE(w, 2) + BYTE(x, 3) * BYTE(w, 3))
enum { GROUND = 128, FLIP = (int)0x80808080u };
static int has_dot(void) { return 1; }
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#define WITH_DOT
#define DOT(sum, x, w) (whole)vdotq_s32((int32x4_t)(sum), (int8x16_t)(x), (int8x16_t)(w))
enum { GROUND = 128, FLIP = (int)0x80808080u };
static int has_dot(void) { return 1; }
#else
#include <cpuid.h>
#include <immintrin.h>
#if defined(__AVX512F__)
#define WITH_DOT __attribute__((target("avx512vnni")))
#define DOT(sum, x, w) (whole)_mm512_dpbusd_epi32((__m512i)(sum), (__m512i)(x), (__m512i)(w))
enum { GROUND = 0, FLIP = 0, LEAF = 0, BIT = 11 };  /* the latter two: what the processor says of itself */
#else
#define WITH_DOT __attribute__((target("avxvnni")))
#define DOT(sum, x, w) (whole)_mm256_dpbusd_avx_epi32((__m256i)(sum), (__m256i)(x), (__m256i)(w))
enum { GROUND = 0, FLIP = 0, LEAF = 1, BIT = 4 };
#endif
static int has_dot(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, LEAF, &a, &b, &c, &d) && ((LEAF ? a : c) >> BIT & 1);
}
#endif

/* Of each example the unit and the code of 0; not finite where an input is not. */
static void ranges(const float *x, size_t n, size_t lanes, codes *c)
{
    enum { WIDE = 4 * ROWS };
    float low[WIDE] = {0}, high[WIDE] = {0}, wrong[WIDE] = {0};
    size_t i = 0;
    for (; i + WIDE <= n; i += WIDE)
        for (int l = 0; l < WIDE; l++) {
            low[l] = x[i + l] < low[l] ? x[i + l] : low[l];
            high[l] = x[i + l] > high[l] ? x[i + l] : high[l];
            wrong[l] += x[i + l] * 0;
        }
    for (; i < n; i++) {
        low[i % ROWS] = x[i] < low[i % ROWS] ? x[i] : low[i % ROWS];
        high[i % ROWS] = x[i] > high[i % ROWS] ? x[i] : high[i % ROWS];
        wrong[i % ROWS] += x[i] * 0;
    }
    for (int l = WIDE - 1; l >= (int)lanes; l--) {
        int to = l % (int)lanes;
        low[to] = low[l] < low[to] ? low[l] : low[to];
        high[to] = high[l] > high[to] ? high[l] : high[to];
        wrong[to] += wrong[l];
    }
    for (size_t l = 0; l < ROWS; l++) {
        size_t from = l % lanes;
        float step = (high[from] - low[from]) / 255 + wrong[from];
        c->step[l] = step;
        c->inverse[l] = step > 1e-30f && step < 1e37f ? 1 / step : 0;
        c->zero[l] = c->inverse[l] > 0 ? (int32_t)(-low[from] * c->inverse[l] + 0.5f) : 0;
    }
}

INLINE uint32_t code_of(float x, float inverse, float zero)
{
    float code = x * inverse + zero;
    code = code > 0 ? code : 0;
    return (uint32_t)(int32_t)(code < 255 ? code : 255);
}

void encode(const float *x, size_t groups, size_t each, size_t columns, size_t lanes, four *to, codes *found)
{
    float zero[ROWS];
    ranges(x, groups * each * columns, lanes, found);
    found->words = to;
    for (int l = 0; l < ROWS; l++)
        zero[l] = (float)found->zero[l] + 0.5f;
    for (size_t g = 0; columns == 1 && g < groups; g++, x += each, to += (each + 3) / 4) {
        uint8_t *bytes = (uint8_t *)to;
        for (size_t i = 0; i < each; i++)
            bytes[i] = (uint8_t)code_of(x[i], *found->inverse, *zero);
    }
    for (size_t g = 0; columns > 1 && g < groups; g++, x += each * columns)
        for (size_t c = 0; c < each; c += 4, to += columns) {
            const float *from[4];
            for (size_t j = 0; j < 4; j++)        /* one that is not there has weights of 0 */
                from[j] = x + (c + j < each ? c + j : c) * columns;
            for (size_t i = 0; i < columns; i += ROWS)
                for (int l = 0; l < ROWS; l++) {
                    float by = found->inverse[l], ground = zero[l];
                    to[i + l] = code_of(from[0][i + l], by, ground) | code_of(from[1][i + l], by, ground) << 8
                              | code_of(from[2][i + l], by, ground) << 16 | code_of(from[3][i + l], by, ground) << 24;
                }
        }
}

/* Like `tile` in linear.c; then whole numbers become sums of weights and inputs. */
INLINE WITH_DOT void code_tile(int vectors, const kernel *k, const codes *c, size_t row, const four *in, size_t pitch,
                               size_t column, float *sum)
{
    const uint32_t *w = k->codes + row / PACK * (size_t)k->fours * PACK + row % PACK, *offset = k->offset;
    whole total[TILE_OUTPUTS][TILE_VECTORS];
    for (int o = 0; o < TILE_OUTPUTS; o++)
        for (int v = 0; v < vectors; v++)
            total[o][v] = (whole){0};
    for (int d = 0; d < k->fours; d++) {
        const four *x = in + offset[d] * pitch;
        whole seen[TILE_VECTORS];
        for (int v = 0; v < vectors; v++)
            seen[v] = *(const whole *)(x + v * LANES) ^ FLIP;
        for (int o = 0; o < TILE_OUTPUTS; o++)
            for (int v = 0; v < vectors; v++)
                total[o][v] = DOT(total[o][v], seen[v], (whole){0} + (int32_t)w[(size_t)d * PACK + o]);
    }
    for (int v = 0; v < vectors; v++) {
        size_t from = (column + (size_t)v * LANES) % ROWS;
        whole zero = *(const whole *)(c->zero + from) - GROUND;
        lane step = *(const lane *)(c->step + from);
        for (int o = 0; o < TILE_OUTPUTS; o++)
            *(lane *)(sum + o * PITCH + v * LANES) = __builtin_convertvector(total[o][v] - zero * k->code_total[row + (size_t)o], lane)
                                                   * (step * k->code_step[row + (size_t)o]);
    }
}

WITH_DOT void code_sums(const kernel *k, int group, int output, const layout *at, size_t column, int vectors, float *sum)
{
    const codes *c = at->codes;
    const four *in = c->words + (size_t)group * at->group * at->pitch + column;
    size_t row = (size_t)group * (size_t)((k->outputs + PACK - 1) / PACK) * PACK + (size_t)output;
    switch (vectors) {
    case 1: code_tile(1, k, c, row, in, at->pitch, column, sum); break;
    case 2: code_tile(2, k, c, row, in, at->pitch, column, sum); break;
    default: code_tile(TILE_VECTORS, k, c, row, in, at->pitch, column, sum); break;
    }
}

/* One column: sums of `blocks` blocks of PACK outputs. */
INLINE WITH_DOT void code_blocks(int blocks, const kernel *k, const four *x, const uint32_t *w, int32_t *sum)
{
    enum { VECTORS = PACK / LANES };
    whole total[4][VECTORS];
    for (int i = 0; i < blocks * VECTORS; i++)
        total[i / VECTORS][i % VECTORS] = (whole){0};
    for (int d = 0; d < k->fours; d++)
        for (int b = 0; b < blocks; b++)
            for (int v = 0; v < VECTORS; v++)
                total[b][v] = DOT(total[b][v], ((whole){0} + (int32_t)x[d]) ^ FLIP,
                                  *(const whole *)(w + ((size_t)b * (size_t)k->fours + (size_t)d) * PACK + v * LANES));
    for (int i = 0; i < blocks * VECTORS; i++)
        *(whole *)(sum + i * LANES) = total[i / VECTORS][i % VECTORS];
}

WITH_DOT void code_column(const kernel *k, const layout *at)
{
    const codes *c = at->codes;
    int32_t sum[4 * PACK], zero = *c->zero - GROUND;
    for (int o = 0; o < k->outputs; o += 4 * PACK) {
        const uint32_t *w = k->codes + (size_t)o * (size_t)k->fours;
        if (k->outputs - o > 3 * PACK)
            code_blocks(4, k, c->words, w, sum);
        else
            for (int b = 0; b * PACK < k->outputs - o; b++)
                code_blocks(1, k, c->words, w + (size_t)b * PACK * (size_t)k->fours, sum + b * PACK);
        for (int j = o; j < k->outputs && j < o + 4 * PACK; j++) {
            float scale = (k->gate ? k->gate[j] : 1) * k->scale[j] * k->code_step[j] * *c->step;
            at->out[j] = (float)(sum[j - o] - zero * k->code_total[j]) * scale + k->shift[MEAN][j];
        }
    }
}

/* What words save, in multiplications of an output, against what codes of an input and sums of an output cost
   (measured); a sum of more could be beyond a whole number. */
static int is_worth_it(const kernel *k, int inputs)
{
    enum { MOST_DEPTH = 32768, INPUT = 12, OUTPUT = 6 };
    double saved = (double)k->outputs * (k->depth - k->fours);
    return !k->is_sparse && k->depth <= MOST_DEPTH && saved > (double)INPUT * inputs + (double)OUTPUT * k->outputs;
}

static void code_row(kernel *k, size_t row, int places)
{
    const float *from = k->values[MEAN] + row / PACK * (size_t)k->depth * PACK + row % PACK;
    uint32_t *to = k->codes + row / PACK * (size_t)k->fours * PACK + row % PACK;
    int each = k->depth / places;
    float most = 0, wrong = 0;               /* 0, or NaN */
    for (int i = 0; i < k->depth; i++) {
        most = fabsf(from[(size_t)i * PACK]) > most ? fabsf(from[(size_t)i * PACK]) : most;
        wrong += from[(size_t)i * PACK] * 0;
    }
    k->code_step[row] = most / 127 + wrong;
    for (int d = 0; d < k->fours; d++)
        for (int j = 0; j < 4; j++) {
            int input = d / places * 4 + j, place = d % places;
            float w = input < each ? from[(size_t)(input * places + place) * PACK] : 0;
            int32_t code = most > 0 && wrong == 0 ? (int32_t)lrintf(w / most * 127) : 0;
            to[(size_t)d * PACK] |= ((uint32_t)code & 255) << 8 * j;
            k->code_total[row] += code;
        }
}

void codes_make(pocket *m, kernel *k, int places)
{
    size_t rows = (size_t)((k->outputs + PACK - 1) / PACK * k->groups) * PACK;
    k->fours = (k->depth / places + 3) / 4 * places;
    if (!has_dot() || !is_worth_it(k, k->depth / places))
        return;
    k->codes = take(m, rows * (size_t)k->fours + SLACK, sizeof *k->codes);
    k->code_step = take(m, rows, sizeof *k->code_step);
    k->code_total = take(m, rows, sizeof *k->code_total);
    for (size_t row = 0; row < rows && !m->error[0]; row++)
        code_row(k, row, places);
}
#endif

int pocket_int8(const pocket *m)
{
    int found = 0;
    for (int i = 0; i < m->kernels; i++)
        found += m->member->kernels[i].codes != NULL;
    return found;
}
