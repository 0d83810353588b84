/* Reads files from its input, each behind its size (uint32), and says of each whether it was read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "file.h"

/* Looks at every number, so that a sanitiser sees where they end. */
static double touched(const pocket_file *file) {
    double sum = 0;
    for (uint32_t k = 0; k < file->count; k++) {
        const pocket_weight *w = file->weights + k;
        sum += (double)strlen(w->name) + w->shape[0];
        for (uint32_t i = 0; i < w->count; i++) {
            sum += w->mean[i];
            if (w->std) sum += w->std[i];
            if (w->inclusion) sum += w->inclusion[i];
            if (w->index && w->index[i] >= w->size) abort();
            if (w->index && i && w->index[i] <= w->index[i - 1]) abort();
            if (w->label) sum += w->label[i];
        }
        if (!w->index && w->count != w->size) abort();
    }
    for (size_t k = 0; k < file->program_size; k++) sum += file->program[k];
    return sum;
}

int main(void) {
    uint32_t size;
    char error[256];
    while (fread(&size, sizeof size, 1, stdin) == 1) {
        uint8_t *bytes = malloc(size ? size : 1);  /* of just this size */
        pocket_file file;
        if (!bytes || fread(bytes, 1, size, stdin) != size) return 1;
        int refused = pocket_read(bytes, size, &file, error);
        free(bytes);
        volatile double sum = refused ? 0 : touched(&file);
        (void)sum;
        if (!refused) pocket_free(&file);
        puts(refused ? error : "read");
    }
    return 0;
}
