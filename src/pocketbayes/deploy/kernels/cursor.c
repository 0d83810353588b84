/* Walks over the weights that are there: bytes are gaps between their places, 255 one of 255 without a weight. */
typedef struct cursor {
    const uint8_t *gap;
    int left, place, number;             /* place: of the next weight, counted from the row's first */
} cursor;

static void to_next(cursor *c)
{
    c->number++;
    if (c->left-- == 0) {
        c->place = 1 << 30;              /* behind all rows */
        return;
    }
    for (c->place++; *c->gap == 255; c->gap++)
        c->place += 255;
    c->place += *c->gap++;
}

static cursor first_of(const weights *w)
{
    cursor c = {w->gap, w->count, -1, -1};
    to_next(&c);
    return c;
}
