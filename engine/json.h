/* engine/json.h: JSON text as a tree. Every function takes NULL for a node that is not there. */
#ifndef POCKET_JSON_H
#define POCKET_JSON_H
#include "file.h"
#include "reading.h"

enum { JSON_NULL, JSON_BOOL, JSON_WHOLE, JSON_REAL, JSON_TEXT, JSON_LIST, JSON_OBJECT };

int json_kind(const json *node);                              /* -1: not there */
const json *json_get(const json *object, const char *key);    /* NULL: not there, or no object */
const char *json_text(const json *node);                      /* NULL: no text */
double json_number(const json *node);                         /* 1 and 0 for true and false; NaN: none */
uint32_t json_count(const json *node);                        /* of a list or an object, else 0 */
const json *json_at(const json *node, uint32_t number);       /* of an object by rising keys */
const char *json_key(const json *node);                       /* of a member of an object */

/* The tree of a text; numbers beyond a double are infinite. Reader's own: */
int json_read(reading *r, const uint8_t *text, size_t size, const json **out);
int json_merged(reading *r, const json *one, const json *other, const json **out);
int utf8_is_good(const uint8_t *text, size_t size);
#endif
