/* engine/json.c: JSON text (RFC 8259) as a tree. A key that comes twice counts as its last one. */
#include "json.h"
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 128, MOST_DIGITS = 4300 };

struct json {
    const char *key;
    json *next;                /* behind it in its list, while that is read */
    union { double number; const char *text; const json **items; } is;
    uint32_t count, order;
    int kind;
};

typedef struct parser {
    reading *r;
    const uint8_t *at, *end;
    int depth;
} parser;

static int value_of(parser *p, json *node);

/* What is said of any fault in the text. */
static int wrong(parser *p) { return refuse(p->r, "the description is not JSON"); }

/* Steps over what JSON calls white space. */
static void skip_space(parser *p) {
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r')) p->at++;
}

/* Steps over a byte if it is the next one. */
static int stands(parser *p, char byte) {
    if (p->at >= p->end || *p->at != (uint8_t)byte) return 0;
    p->at++;
    return 1;
}

/* Four hexadecimal digits; -1: there are none. */
static long hexadecimal(const uint8_t *at, const uint8_t *end) {
    long code = 0;
    if (end - at < 4) return -1;
    for (int k = 0; k < 4; k++) {
        int c = at[k], lower = c | 32;
        int digit = c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
        if (digit < 0) return -1;
        code = 16 * code + digit;
    }
    return code;
}

/* A code point as UTF-8. */
static char *put_utf8(char *out, long code) {
    int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const int lead[] = {0, 0xC0, 0xE0, 0xF0};
    *out++ = (char)(unsigned char)(lead[more] | (int)(code >> (6 * more)));
    while (more--) *out++ = (char)(unsigned char)(0x80 | ((code >> (6 * more)) & 63));
    return out;
}

/* What \u stands for: a code point, perhaps of two such. Steps over it; 0: none, or half a pair. */
static long escaped_code(parser *p) {
    long code = hexadecimal(p->at, p->end), low = -1;
    if (code <= 0) return 0;  /* \u0000 would end a name early */
    p->at += 4;
    if (code >= 0xD800 && code < 0xDC00 && p->end - p->at >= 6 && p->at[0] == '\\' && p->at[1] == 'u')
        low = hexadecimal(p->at + 2, p->end);
    if (low < 0xDC00 || low > 0xDFFF) return code >= 0xD800 && code < 0xE000 ? 0 : code;
    p->at += 6;
    return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
}

/* The text behind an opening quote. */
static int text_of(parser *p, const char **text) {
    const uint8_t *close = p->at;
    while (close < p->end && *close != '"') close += *close == '\\' && p->end - close > 1 ? 2 : 1;
    if (close >= p->end) return wrong(p);
    char *out = arena_take(&p->r->kept, (uint64_t)(close - p->at) + 1, 1);
    if (!out) return no_memory(p->r);
    *text = out;
    while (p->at < close) {
        static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
        int c = *p->at++;
        const char *found = NULL;
        if (c < 32) return wrong(p);
        if (c != '\\') {
            *out++ = (char)(unsigned char)c;
        } else if ((c = *p->at++) == 'u') {
            long code = escaped_code(p);
            if (!code) return wrong(p);
            out = put_utf8(out, code);
        } else if (c && (found = strchr(letters, c)) != NULL) {
            *out++ = meant[found - letters];
        } else {
            return wrong(p);
        }
    }
    p->at = close + 1;
    return 0;
}

/* Steps over digits; how many there were. */
static int digits(parser *p) {
    const uint8_t *begin = p->at;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9') p->at++;
    return p->at - begin > MOST_DIGITS ? MOST_DIGITS + 1 : (int)(p->at - begin);
}

/* The double that a number of this form is nearest to, whatever the program's locale. */
static int double_of(parser *p, const uint8_t *begin, double *number) {
    size_t size = (size_t)(p->at - begin);
    char *copy = arena_take(&p->r->brief, size + 1, 1);
    if (!copy) return no_memory(p->r);
    memcpy(copy, begin, size);
    char *point = strchr(copy, '.');
    if (point) *point = *localeconv()->decimal_point;
    *number = strtod(copy, NULL);
    return 0;
}

/* A whole number, or one with a point or an exponent. */
static int number_of(parser *p, json *node) {
    const uint8_t *begin = p->at;
    node->kind = JSON_WHOLE;
    stands(p, '-');
    int leading_zero = p->at < p->end && *p->at == '0', whole = digits(p);
    if (!whole || (leading_zero && whole > 1)) return wrong(p);
    if (stands(p, '.')) {
        node->kind = JSON_REAL;
        if (!digits(p)) return wrong(p);
    }
    if (p->at < p->end && (*p->at | 32) == 'e') {
        node->kind = JSON_REAL;
        p->at++;
        if (!stands(p, '-')) stands(p, '+');
        if (!digits(p)) return wrong(p);
    }
    if (node->kind == JSON_WHOLE && whole > MOST_DIGITS) return wrong(p);
    return double_of(p, begin, &node->is.number);
}

/* By the bytes of keys, of equal ones in the order of the text. */
static int by_key(const void *one, const void *other) {
    const json *a = *(const json *const *)one, *b = *(const json *const *)other;
    int order = strcmp(a->key, b->key);
    return order ? order : (a->order > b->order) - (a->order < b->order);
}

/* Members in order of their keys, of equal ones the last. */
static void sort_members(json *object) {
    const json **items = object->is.items;
    uint32_t kept = 0;
    qsort(items, object->count, sizeof *items, by_key);
    for (uint32_t k = 0; k < object->count; k++) {
        if (kept && !strcmp(items[kept - 1]->key, items[k]->key)) kept--;
        items[kept++] = items[k];
    }
    object->count = kept;
}

/* A key and its colon. */
static int key_of(parser *p, json *node) {
    skip_space(p);
    if (!stands(p, '"')) return wrong(p);
    TRY(text_of(p, &node->key));
    skip_space(p);
    return stands(p, ':') ? 0 : wrong(p);
}

/* What stands between brackets or braces. */
static int items_of(parser *p, json *node, char close) {
    json *first = NULL, **last = &first;
    skip_space(p);
    int done = stands(p, close);
    while (!done) {
        json *item = arena_take(&p->r->kept, 1, sizeof *item);
        if (!item) return no_memory(p->r);
        if (node->kind == JSON_OBJECT) TRY(key_of(p, item));
        item->order = node->count++;
        TRY(value_of(p, item));
        *last = item;
        last = &item->next;
        skip_space(p);
        done = stands(p, close);
        if (!done && !stands(p, ',')) return wrong(p);
    }
    node->is.items = arena_take(&p->r->kept, node->count, sizeof *node->is.items);
    if (!node->is.items) return no_memory(p->r);
    for (uint32_t k = 0; first; first = first->next) node->is.items[k++] = first;
    if (node->kind == JSON_OBJECT) sort_members(node);
    return 0;
}

/* null, false, true or a number. */
static int constant_of(parser *p, json *node) {
    static const char *const words[] = {"null", "false", "true"};
    for (int k = 0; k < 3; k++) {
        size_t size = strlen(words[k]);
        if ((size_t)(p->end - p->at) < size || memcmp(p->at, words[k], size)) continue;
        p->at += size;
        node->kind = k ? JSON_BOOL : JSON_NULL;
        node->is.number = k == 2;
        return 0;
    }
    return number_of(p, node);
}

/* Any value; what it holds is one level deeper. */
static int value_of(parser *p, json *node) {
    skip_space(p);
    int is_object = stands(p, '{');
    if (is_object || stands(p, '[')) {
        node->kind = is_object ? JSON_OBJECT : JSON_LIST;
        if (++p->depth > DEEPEST) return refuse(p->r, "the description is nested too deeply");
        TRY(items_of(p, node, is_object ? '}' : ']'));
        p->depth--;
        return 0;
    }
    if (!stands(p, '"')) return constant_of(p, node);
    node->kind = JSON_TEXT;
    return text_of(p, &node->is.text);
}

/* One value, and nothing behind it. */
int json_read(reading *r, const uint8_t *text, size_t size, const json **out) {
    parser p = {r, text, text + size, 0};
    json *root;
    TAKE(kept, root, 1);
    TRY(value_of(&p, root));
    skip_space(&p);
    *out = root;
    return p.at == p.end ? 0 : wrong(&p);
}

/* The members of two objects that have no key in common. */
int json_merged(reading *r, const json *one, const json *other, const json **out) {
    json *both;
    TAKE(kept, both, 1);
    both->kind = JSON_OBJECT;
    both->count = one->count + other->count;
    TAKE(kept, both->is.items, both->count);
    memcpy(both->is.items, one->is.items, one->count * sizeof(json *));
    memcpy(both->is.items + one->count, other->is.items, other->count * sizeof(json *));
    sort_members(both);
    *out = both;
    return 0;
}

int json_kind(const json *node) { return node ? node->kind : -1; }

const json *json_get(const json *object, const char *key) {
    if (json_kind(object) != JSON_OBJECT) return NULL;
    uint32_t low = 0, high = object->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = strcmp(key, object->is.items[middle]->key);
        if (!order) return object->is.items[middle];
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

const char *json_text(const json *node) { return json_kind(node) == JSON_TEXT ? node->is.text : NULL; }

double json_number(const json *node) {
    int kind = json_kind(node);
    return kind == JSON_BOOL || kind == JSON_WHOLE || kind == JSON_REAL ? node->is.number : NAN;
}

uint32_t json_count(const json *node) { return json_kind(node) >= JSON_LIST ? node->count : 0; }

const json *json_at(const json *node, uint32_t number) {
    return number < json_count(node) ? node->is.items[number] : NULL;
}

const char *json_key(const json *node) { return node ? node->key : NULL; }

/* Whether bytes are UTF-8: no overlong forms, no surrogates, nothing beyond U+10FFFF. */
int utf8_is_good(const uint8_t *text, size_t size) {
    for (size_t at = 0; at < size;) {
        unsigned lead = text[at++];
        int more = lead < 0x80 ? 0 : lead >= 0xC2 && lead < 0xE0 ? 1 : (lead & 0xF0) == 0xE0 ? 2
                 : lead >= 0xF0 && lead < 0xF5 ? 3 : -1;
        if (more < 0 || size - at < (size_t)more) return 0;
        unsigned least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        unsigned most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        for (; more > 0; more--, least = 0x80, most = 0xBF) {
            if (text[at] < least || text[at] > most) return 0;
            at++;
        }
    }
    return 1;
}
