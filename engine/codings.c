/* engine/codings.c: the bytes of a section as the numbers of its arrays (docs/format.md, 6). */
#include "layout.h"
#include "numbers.h"
#include "runs.h"
#include <string.h>

/* The least and the largest integer that a type holds, and that are coded. */
static void bounds_of(int type, int64_t *least, int64_t *most) {
    int bits = 8 * (int)width_of(type) - 1;
    *most = type == BOOLEAN ? 1 : type == UINT8 ? 255 : type == INT64 ? INT64_MAX : ((int64_t)1 << bits) - 1;
    *least = type == BOOLEAN || type == UINT8 ? 0 : -*most - 1;
}

/* An integer that lies within the bounds of its type: its lowest bytes. */
static void put_whole(uint8_t *data, uint64_t place, int type, int64_t value) {
    memcpy(data + place * width_of(type), &value, width_of(type));
}

/* A real as a float32 or float64, which must be finite. */
static int put_real(reading *r, uint8_t *data, uint64_t place, int type, double value) {
    float single = single_of(value);
    if (!is_finite(type == FLOAT32 ? single : value)) return refuse(r, "a number does not fit its type");
    if (type == FLOAT32) memcpy(data + 4 * place, &single, 4);
    else memcpy(data + 8 * place, &value, 8);
    return 0;
}

/* The values as they stand. */
static int raw(reading *r, const section *one, size_t width, uint8_t *data) {
    if (one->size != one->numbers * width) return refuse(r, "it has more or fewer bytes than its arrays take");
    memcpy(data, one->bytes, (size_t)one->size);
    return 0;
}

/* First bytes of all values, then second bytes, ...: as they are, or coded. */
static int planes(reading *r, const section *one, size_t width, uint8_t *data) {
    const uint8_t *flags = one->bytes;
    size_t kept = 0;
    runs coded;
    if (one->size < width) return refuse(r, "its coded numbers are cut short");
    const uint8_t *plain = flags + width;
    uint64_t rest = one->size - width;
    for (size_t plane = 0; plane < width; plane++) {
        if (flags[plane] > 1) return refuse(r, "a plane is neither coded nor as it is");
        kept += flags[plane];
    }
    if (kept && one->numbers > rest / kept) return refuse(r, "its coded numbers are cut short");
    TRY(runs_open(r, plain + kept * one->numbers, rest - kept * one->numbers, 0, &coded));
    for (size_t plane = 0; plane < width; plane++) {
        if (!flags[plane]) TRY(runs_begin(&coded, one->numbers));
        for (uint64_t k = 0; k < one->numbers; k++) {
            int64_t byte = 0;
            if (!flags[plane]) TRY(runs_within(&coded, 0, 255, &byte));
            data[k * width + plane] = flags[plane] ? *plain++ : (uint8_t)byte;
        }
    }
    return runs_finish(&coded);
}

/* Each array a run of integers within the bounds of their type. */
static int integers(reading *r, const section *one, int type, uint8_t *data) {
    int64_t least, most, value;
    runs coded;
    uint64_t place = 0;
    bounds_of(type, &least, &most);
    TRY(runs_open(r, one->bytes, one->size, 0, &coded));
    for (const array *a = one->first; a; a = a->next) {
        TRY(runs_begin(&coded, a->size));
        for (uint64_t k = 0; k < a->size; k++) {
            TRY(runs_within(&coded, least, most, &value));
            put_whole(data, place++, type, value);
        }
    }
    return runs_finish(&coded);
}

/* The next of rising integers, from the distance to the last one. */
static int rise(reading *r, runs *gaps, int64_t most, int64_t *last) {
    int64_t gap;
    TRY(runs_within(gaps, 0, MOST_INTEGER, &gap));
    if (gap > most - *last - 1) return refuse(r, "its places lie outside of their bounds");
    *last += 1 + gap;
    return 0;
}

/* Each array a run of the distances between rising integers, less 1. */
static int rising(reading *r, const section *one, int type, uint8_t *data) {
    int64_t least, most;
    runs gaps;
    uint64_t place = 0;
    bounds_of(type, &least, &most);
    if (most > MOST_INTEGER) most = MOST_INTEGER;
    TRY(runs_open(r, one->bytes, one->size, 1, &gaps));
    for (const array *a = one->first; a; a = a->next) {
        int64_t last = -1;
        TRY(runs_begin(&gaps, a->size));
        for (uint64_t k = 0; k < a->size; k++) {
            TRY(rise(r, &gaps, most, &last));
            put_whole(data, place++, type, last);
        }
    }
    return runs_finish(&gaps);
}

/* Of each array its most frequent value, and the number of the others, in pairs. */
static int usual_of(reading *r, const section *one, const uint8_t *at, const uint8_t *end, int type, int64_t *pairs) {
    int64_t least, most;
    uint64_t others = 0;
    bounds_of(type, &least, &most);
    for (const array *a = one->first; a; a = a->next, pairs += 2) {
        TRY(varint(r, &at, end, pairs));
        TRY(varint(r, &at, end, pairs + 1));
        if (pairs[0] < least || pairs[0] > most) return refuse(r, "a number does not fit its type");
        if (pairs[1] < 0 || (uint64_t)pairs[1] > a->size) return refuse(r, "it has more exceptions than numbers");
        others += (uint64_t)pairs[1];
    }
    if (at != end) return refuse(r, "it does not say how many numbers are exceptions");
    return others > one->numbers / 2 ? refuse(r, "most of its numbers are exceptions") : 0;
}

/* The most frequent value everywhere, but for places and values of the others. */
static int exceptions(reading *r, const section *one, int type, uint8_t *data) {
    uint32_t sizes[2];
    uint64_t count = 0, begin = 0;
    int64_t least, most, value, *pairs;
    runs gaps, values;
    for (const array *a = one->first; a; a = a->next) count++;
    TAKE(brief, pairs, 2 * count);
    if (one->size < 8) return refuse(r, "its coded numbers are cut short");
    memcpy(sizes, one->bytes, 8);
    const uint8_t *head = one->bytes + 8;
    uint64_t rest = one->size - 8;
    if (sizes[0] > rest || sizes[1] > rest - sizes[0]) return refuse(r, "its coded numbers are cut short");
    TRY(usual_of(r, one, head, head + sizes[0], type, pairs));
    TRY(runs_open(r, head + sizes[0], sizes[1], 1, &gaps));
    TRY(runs_open(r, head + sizes[0] + sizes[1], rest - sizes[0] - sizes[1], 0, &values));
    bounds_of(type, &least, &most);
    for (const array *a = one->first; a; begin += a->size, a = a->next, pairs += 2) {
        int64_t last = -1;
        for (uint64_t k = 0; k < a->size; k++) put_whole(data, begin + k, type, pairs[0]);
        TRY(runs_begin(&gaps, (uint64_t)pairs[1]));
        TRY(runs_begin(&values, (uint64_t)pairs[1]));
        for (int64_t k = 0; k < pairs[1]; k++) {
            TRY(rise(r, &gaps, (int64_t)a->size - 1, &last));
            TRY(runs_within(&values, least, most, &value));
            put_whole(data, begin + (uint64_t)last, type, value);
        }
    }
    TRY(runs_finish(&gaps));
    return runs_finish(&values);
}

/* float16, raw or in planes, as what the arrays hold. */
static int half(reading *r, const section *one, int type, uint8_t *data) {
    uint8_t *halves;
    TAKE(brief, halves, 2 * one->numbers);
    TRY(one->coding == HALF ? raw(r, one, 2, halves) : planes(r, one, 2, halves));
    for (uint64_t k = 0; k < one->numbers; k++) {
        uint16_t bits;
        memcpy(&bits, halves + 2 * k, 2);
        float value = half_value(bits);
        double wide = value;
        if (type == FLOAT16) memcpy(data + 2 * k, &bits, 2);
        else if (type == FLOAT32) memcpy(data + 4 * k, &value, 4);
        else memcpy(data + 8 * k, &wide, 8);
    }
    return 0;
}

/* The value is k step; the multiples stay for the means, if any go with these. */
static int steps(reading *r, section *one, int type, uint8_t *data, int is_followed) {
    uint64_t place = 0;
    runs coded;
    TRY(runs_open(r, one->bytes, one->size, 0, &coded));
    if (is_followed) TAKE(decoded, one->multiples, one->numbers);
    for (const array *a = one->first; a; a = a->next) {
        TRY(runs_begin(&coded, a->size));
        for (uint64_t k = 0; k < a->size; k++, place++) {
            int64_t multiple;
            TRY(runs_next(&coded, &multiple));
            if (is_followed) one->multiples[place] = multiple;
            TRY(put_real(r, data, place, type, (double)multiple * one->step));
        }
    }
    return runs_finish(&coded);
}

/* The means of one array: j step exp(k step'), in runs by rising k. */
static int means(runs *coded, const int64_t *k, const array *a, double step, const ranges *own, uint8_t *data) {
    for (int range = 0; range < own->count; range++) {
        int64_t low = own->low[range], high = own->low[range + 1], multiple;
        uint64_t length = 0;
        for (uint64_t i = 0; i < a->size; i++) length += k[i] >= low && k[i] < high;
        TRY(runs_begin(coded, length));
        for (uint64_t i = 0; length; i++) {
            if (k[i] < low || k[i] >= high) continue;
            TRY(runs_within(coded, 1 - MOST_INTEGER, MOST_INTEGER - 1, &multiple));
            TRY(put_real(coded->r, data, i, a->type, (double)multiple * (exp_of(own, k[i]) * step)));
            length--;
        }
    }
    return 0;
}

/* Means as multiples of a share of their own stds, whose logs `steps` coded. */
static int relative(reading *r, const section *one, const section *logs, uint8_t *data) {
    runs coded;
    const int64_t *k = logs ? logs->multiples : NULL;
    const array *a, *log = logs ? logs->first : NULL;
    ranges own;
    for (a = one->first; a && log && a->size == log->size; a = a->next) log = log->next;
    if (!k || a || log) return refuse(r, "it is coded relative to stds that are not there");
    TRY(runs_open(r, one->bytes, one->size, 1, &coded));
    for (a = one->first; a; a = a->next) {
        TRY(ranges_of(r, k, a->size, logs->step, &own));
        TRY(means(&coded, k, a, one->step, &own, data));
        k += a->size;
        data += a->size * width_of(a->type);
    }
    return runs_finish(&coded);
}

/* Decodes all arrays of a section; `logs`: the log-stds of these means, or the means of these log-stds. */
int section_decode(reading *r, section *one, section *logs) {
    int type = one->first->type, coding = one->coding, is_float = type <= BFLOAT16;
    uint8_t *data;
    size_t width = width_of(type);
    r->section = one->name;
    if ((coding >= HALF && !is_float) || (coding >= STEPS && type > FLOAT64) || (coding >= HALF && type == BFLOAT16))
        return refuse(r, "its coding is none of such numbers");
    if (coding >= INTEGERS && coding <= RISING && is_float) return refuse(r, "its coding is one of integers");
    TAKE(decoded, data, one->numbers * width);
    uint64_t place = 0;
    for (array *a = one->first; a; place += a->size, a = a->next) a->data = data + place * width;
    switch (coding) {
        case RAW: TRY(raw(r, one, width, data)); break;
        case PLANES: TRY(planes(r, one, width, data)); break;
        case INTEGERS: TRY(integers(r, one, type, data)); break;
        case EXCEPTIONS: TRY(exceptions(r, one, type, data)); break;
        case RISING: TRY(rising(r, one, type, data)); break;
        case STEPS: TRY(steps(r, one, type, data, logs != NULL)); break;
        case RELATIVE: TRY(relative(r, one, logs, data)); break;
        default: TRY(half(r, one, type, data));
    }
    arena_free(&r->brief);
    r->section = NULL;
    return 0;
}
