/* web/libc.c: what the engine uses of the C library, in few bytes. Functions of reals and the digits of
   numbers are JavaScript's. Built without the C library, with its headers. */
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FROM_PAGE(name) __attribute__((import_module("page"), import_name(#name)))
FROM_PAGE(exp) double page_exp(double x);
FROM_PAGE(log) double page_log(double x);
FROM_PAGE(pow) double page_pow(double x, double y);
FROM_PAGE(cos) double page_cos(double x);
FROM_PAGE(tanh) double page_tanh(double x);
FROM_PAGE(expm1) double page_expm1(double x);
FROM_PAGE(log1p) double page_log1p(double x);
FROM_PAGE(number) double page_number(const char *text, size_t size);
FROM_PAGE(digits) size_t page_digits(double number, char *to);   /* at most 32 bytes */

double exp(double x) { return page_exp(x); }
double log(double x) { return page_log(x); }
double pow(double x, double y) { return page_pow(x, y); }
double exp2(double x) { return page_pow(2, x); }
double tanh(double x) { return page_tanh(x); }
float expf(float x) { return (float)page_exp(x); }
float powf(float x, float y) { return (float)page_pow(x, y); }
float exp2f(float x) { return (float)page_pow(2, x); }
float tanhf(float x) { return (float)page_tanh(x); }
float expm1f(float x) { return (float)page_expm1(x); }
float log1pf(float x) { return (float)page_log1p(x); }

/* Draws need log and cos of every weight; they are rounded as floats from errors below 1e-10.
   x = 2^n m, sqrt(1/2) <= m < sqrt(2): log x = n log 2 + 2 (s + s^3 / 3 + ... + s^11 / 11), s = (m - 1) / (m + 1). */
float logf(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (bits - 0x00800000u >= 0x7f000000u)   /* not a normal number above 0 */
        return (float)page_log(x);
    int32_t n = (int32_t)(bits - 0x3f3504f3u) >> 23;
    bits -= (uint32_t)n << 23;
    memcpy(&x, &bits, sizeof x);
    double s = ((double)x - 1) / ((double)x + 1), q = s * s;
    double series = 1 + q * (1.0 / 3 + q * (1.0 / 5 + q * (1.0 / 7 + q * (1.0 / 9 + q * (1.0 / 11)))));
    return (float)(n * 0.6931471805599453 + 2 * s * series);
}

/* x = n pi + r, |r| <= pi / 2: cos x = +-cos r, by its series up to r^14. */
float cosf(float x)
{
    if (!(fabsf(x) < 1000))
        return (float)page_cos(x);
    double n = floor((double)x * 0.3183098861837907 + 0.5), r = (double)x - n * 3.141592653589793, q = r * r;
    double found = 1 - q / 2 * (1 - q / 12 * (1 - q / 30 * (1 - q / 56 * (1 - q / 90 * (1 - q / 132 * (1 - q / 182))))));
    return (float)((int32_t)n & 1 ? -found : found);
}

/* 2^n, also beyond what an exponent holds, in two factors. */
double ldexp(double x, int n)
{
    for (int rest = n, step; rest; rest -= step) {
        uint64_t bits;
        double factor;
        step = rest > 1000 ? 1000 : rest < -1000 ? -1000 : rest;
        bits = (uint64_t)(step + 1023) << 52;
        memcpy(&factor, &bits, sizeof factor);
        x *= factor;
    }
    return x;
}

/* a b = p + e exactly (Dekker); p + c = s + t. Rounded once where t is 0, which is all that the engine asks. */
double fma(double a, double b, double c)
{
    double split = 134217729.0, x = a * split, y = b * split, p = a * b, s = p + c, back = s - p;
    double a1 = x - (x - a), a2 = a - a1, b1 = y - (y - b), b2 = b - b1;
    double e = ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2, t = (p - (s - back)) + (c - back);
    return s + (t + e);
}

/* erfc(x) = exp(-x^2) x / sqrt(pi) / (x^2 + 1/2 / (1 + 1 / (x^2 + 3/2 / (1 + ...)))) or 1 - a series. */
double erfc(double x)
{
    double size = fabs(x), square = x * x, found = 0;
    if (size < 2.5) {
        double term = size;
        for (int n = 1; n < 60; n++) {
            found += term;
            term *= 2 * square / (2 * n + 1);
        }
        found = 1 - 1.1283791670955126 * page_exp(-square) * found;
    } else if (size < 27) {
        double inner = 0;
        for (int n = 60; n > 0; n--)
            inner = n / 2.0 / (size + inner);
        found = page_exp(-square) * 0.5641895835477563 / (size + inner);
    }
    return x < 0 ? 2 - found : found;
}
float erfcf(float x) { return (float)erfc(x); }

/* Memory: blocks in the order of their places, each behind its size; free neighbours become one. */
typedef struct block { size_t size, is_free; uint64_t align; } block;
enum { PAGE = 65536 };
extern unsigned char __heap_base;
static unsigned char *first, *end;

static block *grown(size_t wanted)
{
    size_t pages = (wanted + sizeof(block) + PAGE - 1) / PAGE, old = __builtin_wasm_memory_size(0) * (size_t)PAGE;
    if (!first)
        first = end = (unsigned char *)(((uintptr_t)&__heap_base + 15) / 16 * 16);
    if (end + wanted + sizeof(block) > (unsigned char *)old && __builtin_wasm_memory_grow(0, pages) == SIZE_MAX)
        return NULL;
    block *made = (block *)end;
    made->size = wanted;
    end += wanted + sizeof *made;
    return made;
}

void *malloc(size_t size)
{
    if (size > SIZE_MAX / 4)
        return NULL;
    size_t wanted = (size + 15) / 16 * 16 + (size ? 0 : 16);
    block *found = NULL;
    for (unsigned char *at = first; at < end && !found; at += ((block *)at)->size + sizeof(block)) {
        block *b = (block *)at;
        while (b->is_free && at + sizeof *b + b->size < end && ((block *)(at + sizeof *b + b->size))->is_free)
            b->size += sizeof *b + ((block *)(at + sizeof *b + b->size))->size;
        found = b->is_free && b->size >= wanted ? b : NULL;
    }
    if (found && found->size > wanted + sizeof *found) {
        block *rest = (block *)((unsigned char *)(found + 1) + wanted);
        *rest = (block){found->size - wanted - sizeof *rest, 1, 0};
        found->size = wanted;
    }
    if (!found && !(found = grown(wanted)))
        return NULL;
    found->is_free = 0;
    return found + 1;
}

void free(void *memory)
{
    if (memory)
        ((block *)memory - 1)->is_free = 1;
}

void *calloc(size_t count, size_t size)
{
    void *made = size && count > SIZE_MAX / size ? NULL : malloc(count * size);
    return made ? memset(made, 0, count * size) : NULL;
}

void *realloc(void *memory, size_t size)
{
    size_t old = memory ? ((block *)memory - 1)->size : 0;
    void *made = malloc(size);
    if (made && memory)
        memcpy(made, memory, old < size ? old : size);
    if (made)
        free(memory);
    return made;
}

/* Heapsort: never slow, and the engine's orders have no ties that matter. */
static void sink(unsigned char *base, size_t root, size_t count, size_t size, int (*order)(const void *, const void *))
{
    for (size_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && order(base + child * size, base + (child + 1) * size) < 0)
            child++;
        unsigned char *a = base + root * size, *b = base + child * size;
        if (order(a, b) >= 0)
            return;
        for (size_t i = 0; i < size; i++) {
            unsigned char kept = a[i];
            a[i] = b[i];
            b[i] = kept;
        }
    }
}

void qsort(void *base, size_t count, size_t size, int (*order)(const void *, const void *))
{
    unsigned char *bytes = base, kept[64];
    for (size_t root = count / 2; root-- > 0;)
        sink(bytes, root, count, size, order);
    while (count-- > 1) {
        unsigned char *last = bytes + count * size;
        for (size_t i = 0; i < size; i += sizeof kept) {
            size_t part = size - i < sizeof kept ? size - i : sizeof kept;
            memcpy(kept, bytes + i, part);
            memcpy(bytes + i, last + i, part);
            memcpy(last + i, kept, part);
        }
        sink(bytes, 0, count, size, order);
    }
}

size_t strlen(const char *s)
{
    size_t n = 0;
    while (s[n])
        n++;
    return n;
}

int strncmp(const char *a, const char *b, size_t n)
{
    for (; n; n--, a++, b++)
        if (*a != *b || !*a)
            return (unsigned char)*a - (unsigned char)*b;
    return 0;
}
int strcmp(const char *a, const char *b) { return strncmp(a, b, SIZE_MAX); }

int memcmp(const void *one, const void *other, size_t n)
{
    const unsigned char *a = one, *b = other;
    for (; n; n--, a++, b++)
        if (*a != *b)
            return *a - *b;
    return 0;
}

void *memchr(const void *bytes, int byte, size_t n)
{
    for (const unsigned char *at = bytes; n; n--, at++)
        if (*at == (unsigned char)byte)
            return (void *)(uintptr_t)at;
    return NULL;
}

char *strchr(const char *s, int c) { return memchr(s, c, strlen(s) + 1); }

char *strrchr(const char *s, int c)
{
    for (size_t n = strlen(s) + 1; n--;)
        if (s[n] == (char)c)
            return (char *)(uintptr_t)(s + n);
    return NULL;
}

char *strstr(const char *s, const char *part)
{
    for (size_t size = strlen(part); *s; s++)
        if (!strncmp(s, part, size))
            return (char *)(uintptr_t)s;
    return NULL;
}

size_t strspn(const char *s, const char *set)
{
    size_t n = 0;
    while (s[n] && strchr(set, s[n]))
        n++;
    return n;
}

struct lconv *localeconv(void)
{
    static struct lconv plain = {.decimal_point = "."};
    return &plain;
}

double strtod(const char *restrict text, char **restrict rest)
{
    size_t size = strlen(text);
    if (rest)
        *rest = (char *)(uintptr_t)(text + size);
    return page_number(text, size);
}

/* Digits of a whole number, in front of `to`. */
static char *put_whole(char *to, unsigned long number, unsigned base)
{
    do
        *--to = "0123456789abcdef"[number % base];
    while (number /= base);
    return to;
}

/* %s, %d, %u, %x, also of long and size_t; %g and %f as JavaScript writes numbers; widths by zeros. */
int vsnprintf(char *restrict out, size_t room, const char *restrict format, va_list parts)
{
    size_t size = 0;
    for (; *format; format++) {
        char digits[40], *text = digits, letter;
        size_t most = SIZE_MAX, least = 0, length;
        if (*format != '%') {
            if (++size < room)
                out[size - 1] = *format;
            continue;
        }
        for (letter = *++format; strchr("0123456789.lz", letter); letter = *++format)
            if (letter == '.')
                most = 0;
            else if (letter < 'a' && most != SIZE_MAX)
                most = 10 * most + (size_t)(letter - '0');
            else if (letter < 'a')
                least = 10 * least + (size_t)(letter - '0');
        if (letter == 's')
            text = va_arg(parts, char *);
        else if (letter == 'g' || letter == 'f')
            digits[page_digits(va_arg(parts, double), digits)] = 0;
        else {
            long number = va_arg(parts, long);
            int is_less = letter == 'd' && number < 0;
            digits[39] = 0;
            text = put_whole(digits + 39, is_less ? 0 - (unsigned long)number : (unsigned long)number, letter == 'x' ? 16 : 10);
            while (digits + 39 - text < (ptrdiff_t)least)
                *--text = '0';
            if (is_less)
                *--text = '-';
        }
        length = strlen(text);
        for (size_t i = 0; i < length && (i < most || letter != 's'); i++)
            if (++size < room)
                out[size - 1] = text[i];
    }
    if (room)
        out[size < room ? size : room - 1] = 0;
    return (int)size;
}

int snprintf(char *restrict out, size_t room, const char *restrict format, ...)
{
    va_list parts;
    va_start(parts, format);
    int size = vsnprintf(out, room, format, parts);
    va_end(parts);
    return size;
}
