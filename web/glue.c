/* web/glue.c: what JavaScript calls. Pointers are numbers there; texts end with 0. */
#include "pocket.h"
#include <stdlib.h>

#define FOR_PAGE(name) __attribute__((export_name(#name)))

FOR_PAGE(take) void *page_take(size_t size) { return malloc(size); }
FOR_PAGE(give) void page_give(void *memory) { free(memory); }

FOR_PAGE(open) pocket *page_open(const uint8_t *bytes, size_t size, int draws, int moments, char *error)
{
    return pocket_load(bytes, size, &(pocket_options){draws, moments}, error);
}
FOR_PAGE(close) void page_close(pocket *model) { pocket_close(model); }
FOR_PAGE(fact) size_t page_fact(const pocket *model, char *text, size_t room)
{
    return pocket_fact(model, NULL, text, room);
}
FOR_PAGE(shape) int page_shape(const pocket *model, int number, int32_t *sides) { return pocket_shape(model, number, sides); }
FOR_PAGE(kind) int page_kind(const pocket *model) { return pocket_kind(model); }
FOR_PAGE(inputs) int page_inputs(const pocket *model) { return pocket_inputs(model); }
FOR_PAGE(estimator) int page_estimator(const pocket *model) { return pocket_default(model); }
FOR_PAGE(members) int page_members(const pocket *model) { return pocket_members(model); }
FOR_PAGE(error) const char *page_error(const pocket *model) { return pocket_error(model); }

FOR_PAGE(predict) int page_predict(pocket *model, const float *const *inputs, int rows, int estimator, int draws,
                                   uint32_t seed, uint32_t seed_above, float level, const pocket_answer *answer)
{
    pocket_ask ask = {estimator, draws, (uint64_t)seed_above << 32 | seed, level, NULL};
    return pocket_predict(model, inputs, rows, &ask, answer);
}
