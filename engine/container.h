/* engine/container.h: the file itself, a safetensors file with a description and a checksum. */
#ifndef POCKET_CONTAINER_H
#define POCKET_CONTAINER_H
#include "json.h"

struct array;

typedef struct section {
    const char *name;
    const uint8_t *bytes;
    uint64_t size;
    int coding;
    double step;
    struct array *first, **last;   /* its arrays, in the order of their names */
    uint64_t numbers;              /* of all of them */
    int64_t *multiples;            /* what `steps` coded, for the means that follow */
} section;

typedef struct container {
    const json *facts;
    section *sections;             /* by rising names, without description and program */
    uint32_t count;
    uint64_t size;                 /* of the file */
    const uint8_t *program;
    size_t program_size;
} container;

int container_read(reading *r, const uint8_t *bytes, size_t size, container *out);
int model_check(reading *r, const json *model);   /* what the description says of the model */
#endif
