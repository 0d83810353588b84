/* engine/shapes.c: the shape of every result: one rule an operation, which refuses what does not fit. */
#include "program.h"
#include <string.h>

#define NEED(good, what) do { if (!(good)) return what; } while (0)
static const int64_t MOST_NUMBERS = (int64_t)1 << 26, FULL = (int64_t)1 << 62;

int64_t product(const int64_t *sides, int count)
{
    int64_t found = 1;
    for (int i = 0; i < count; i++)
        if (sides[i] == 0)
            return 0;
    for (int i = 0; i < count; i++)
        found = found > FULL / sides[i] ? FULL : found * sides[i];
    return found;
}

int64_t numbers_of(const shape *s) { return product(s->side, s->rank); }

int same_shape(const shape *a, const shape *b)
{
    return a->rank == b->rank && !memcmp(a->side, b->side, (size_t)a->rank * sizeof *a->side);
}

static int is_vector(const shape *s, int64_t length)
{
    return !s || (s->rank == 1 && s->side[0] == length);
}

static int are_flags(int32_t a, int32_t b) { return (a == 0 || a == 1) && (b == 0 || b == 1); }

const char *fit_linear(const checker *c, const operation *op, shape *out)
{
    const shape *x = shape_at(c, op->x[0]), *w = shape_at(c, op->x[1]);
    NEED(w->rank == 2 && x->rank > 0 && x->side[x->rank - 1] == w->side[1], "the weight does not fit");
    NEED(is_vector(shape_at(c, op->x[2]), w->side[0]), "the bias does not fit");
    *out = *x;
    out->side[x->rank - 1] = w->side[0];
    return NULL;
}

/* The number of windows along each of the last axes: (side + 2 p - d (k - 1) - 1) / s + 1. */
static const char *windows(const shape *x, const int32_t *kernel, int axes, const operation *op, int first,
                           int with_dilation, int up, shape *out)
{
    int64_t padded[MOST_AXES];
    int kept = x->rank - axes;
    memcpy(padded, x->side, sizeof padded);
    for (int i = 0; i < 2 + with_dilation; i++)
        NEED(op->l[first + i].count == axes, "a list has not one number an axis");
    *out = *x;
    for (int i = 0; i < axes; i++) {
        int64_t s = op->l[first].at[i], p = op->l[first + 1].at[i];
        NEED(kernel[i] >= 1 && s >= 1 && (!with_dilation || op->l[first + 2].at[i] >= 1), "a kernel, stride or dilation is 0");
        padded[kept + i] += 2 * p;
    }
    NEED(product(padded, x->rank) <= MOST_NUMBERS, "too much padding");
    for (int i = 0; i < axes; i++) {
        int64_t s = op->l[first].at[i], p = op->l[first + 1].at[i], d = with_dilation ? op->l[first + 2].at[i] : 1;
        int64_t room = padded[kept + i] - d * (kernel[i] - 1) - 1;
        NEED(room >= 0, "a kernel is larger than its side");
        int64_t number = (room + (s - 1) * up) / s + 1;
        out->side[kept + i] = up && (number - 1) * s >= x->side[kept + i] + p ? number - 1 : number;
    }
    return NULL;
}

const char *fit_conv(const checker *c, const operation *op, shape *out)
{
    const shape *x = shape_at(c, op->x[0]), *w = shape_at(c, op->x[1]);
    int axes = w->rank - 2, groups = op->n[0];
    int32_t kernel[MOST_AXES];
    NEED((axes == 1 || axes == 2) && x->rank == axes + 1, "the weight does not fit");
    NEED(groups >= 1 && w->side[0] % groups == 0 && w->side[1] * groups == x->side[0], "the groups do not fit");
    NEED(is_vector(shape_at(c, op->x[2]), w->side[0]), "the bias does not fit");
    for (int i = 0; i < axes; i++)
        kernel[i] = (int32_t)w->side[2 + i];
    const char *wrong = windows(x, kernel, axes, op, 0, 1, 0, out);
    out->side[0] = w->side[0];
    return wrong;
}

const char *fit_norm(const checker *c, const operation *op, shape *out)
{
    const shape *x = shape_at(c, op->x[0]);
    NEED(x->rank > 0, "there is no axis 0");
    for (int i = 1; i < 5; i++)
        NEED(is_vector(shape_at(c, op->x[i]), x->side[0]), "a weight does not fit");
    NEED(op->r[0] >= 0, "eps is negative");
    *out = *x;
    return NULL;
}

const char *fit_layer_norm(const checker *c, const operation *op, shape *out)
{
    const shape *x = shape_at(c, op->x[0]);
    int axes = op->n[0];
    NEED(axes >= 1 && axes <= x->rank && op->r[0] >= 0, "there are no such axes to normalise");
    for (int i = 1; i < 3; i++) {
        const shape *w = shape_at(c, op->x[i]);
        NEED(!w || (w->rank == axes && !memcmp(w->side, x->side + x->rank - axes, (size_t)axes * sizeof *w->side)),
             "a weight does not fit");
    }
    *out = *x;
    return NULL;
}

const char *fit_group_norm(const checker *c, const operation *op, shape *out)
{
    const shape *x = shape_at(c, op->x[0]);
    NEED(x->rank > 0 && op->n[0] >= 1 && x->side[0] % op->n[0] == 0 && op->r[0] >= 0, "the groups do not fit");
    for (int i = 1; i < 3; i++)
        NEED(is_vector(shape_at(c, op->x[i]), x->side[0]), "a weight does not fit");
    *out = *x;
    return NULL;
}

const char *fit_embedding(const checker *c, const operation *op, shape *out)
{
    const shape *x = shape_at(c, op->x[0]), *w = shape_at(c, op->x[1]);
    NEED(w->rank == 2, "the weight is no table");
    NEED(x->rank < MOST_AXES, "a shape has too many axes");
    *out = *x;
    out->side[out->rank++] = w->side[1];
    return NULL;
}

const char *fit_recurrent(const checker *c, const operation *op, shape *out)
{
    const shape *x = shape_at(c, op->x[0]), *in = shape_at(c, op->x[1]), *own = shape_at(c, op->x[2]);
    int64_t width = own->rank > 0 ? own->side[own->rank - 1] : 0, rows = (op->row->code == 7 ? 4 : 3) * width;
    NEED(x->rank == 2 && in->rank == 2 && in->side[0] == rows && in->side[1] == x->side[1], "the first weight does not fit");
    NEED(own->rank == 2 && own->side[0] == rows, "the second weight does not fit");
    NEED(is_vector(shape_at(c, op->x[3]), rows) && is_vector(shape_at(c, op->x[4]), rows), "a bias does not fit");
    NEED(are_flags(op->n[0], 0), "a flag is neither 0 nor 1");
    *out = *x;
    out->side[1] = width;
    return NULL;
}

const char *fit_attention(const checker *c, const operation *op, shape *out)
{
    const shape *q = shape_at(c, op->x[0]), *k = shape_at(c, op->x[1]), *v = shape_at(c, op->x[2]);
    const shape *mask = shape_at(c, op->x[3]);
    int before = q->rank - 2;
    shape scores = *q, both;
    NEED(q->rank >= 2 && k->rank == q->rank && v->rank == q->rank, "queries, keys and values do not fit");
    for (int i = 0; i < before; i++)
        NEED(q->side[i] == k->side[i] && k->side[i] == v->side[i], "queries, keys and values do not fit");
    NEED(q->side[before + 1] == k->side[before + 1] && k->side[before] == v->side[before], "queries, keys and values do not fit");
    scores.side[before + 1] = k->side[before];
    NEED(numbers_of(&scores) <= MOST_NUMBERS, "there are too many pairs of queries and keys");
    NEED(!mask || (!broadcast(mask, &scores, &both) && same_shape(&both, &scores)), "the mask does not fit");
    NEED(are_flags(op->n[0], 0), "a flag is neither 0 nor 1");
    *out = *q;
    out->side[before + 1] = v->side[before + 1];
    return NULL;
}

const char *broadcast(const shape *a, const shape *b, shape *out)
{
    out->rank = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 1; i <= out->rank; i++) {
        int64_t m = i <= a->rank ? a->side[a->rank - i] : 1, n = i <= b->rank ? b->side[b->rank - i] : 1;
        NEED(m == n || m == 1 || n == 1, "the shapes do not broadcast");
        out->side[out->rank - i] = m > n ? m : n;
    }
    return NULL;
}

const char *fit_pair(const checker *c, const operation *op, shape *out)
{
    return broadcast(shape_at(c, op->x[0]), shape_at(c, op->x[1]), out);
}

const char *fit_matmul(const checker *c, const operation *op, shape *out)
{
    shape a = *shape_at(c, op->x[0]), b = *shape_at(c, op->x[1]);
    NEED(a.rank >= 2 && b.rank >= 2 && a.side[a.rank - 1] == b.side[b.rank - 2], "the shapes are no product");
    int64_t rows = a.side[a.rank - 2], columns = b.side[b.rank - 1];
    a.rank -= 2, b.rank -= 2;
    const char *wrong = broadcast(&a, &b, out);
    NEED(!wrong, wrong);
    out->side[out->rank++] = rows;
    out->side[out->rank++] = columns;
    return NULL;
}

const char *fit_same(const checker *c, const operation *op, shape *out)
{
    *out = *shape_at(c, op->x[0]);
    return NULL;
}

const char *fit_concat(const checker *c, const operation *op, shape *out)
{
    int axis = op->n[0];
    *out = *shape_at(c, op->many[0]);
    NEED(axis < out->rank, "there is no such axis");
    for (int i = 1; i < op->many_count; i++) {
        shape other = *shape_at(c, op->many[i]);
        NEED(other.rank == out->rank, "what is to be joined has different shapes");
        int64_t more = other.side[axis];
        other.side[axis] = out->side[axis];
        NEED(same_shape(&other, out), "what is to be joined has different shapes");
        out->side[axis] += more;
    }
    return NULL;
}

static void from_list(const operation *op, shape *out)
{
    out->rank = op->l[0].count;
    for (int i = 0; i < out->rank; i++)
        out->side[i] = op->l[0].at[i];
}

const char *fit_reshape(const checker *c, const operation *op, shape *out)
{
    from_list(op, out);
    NEED(numbers_of(out) == numbers_of(shape_at(c, op->x[0])), "there are not as many numbers");
    return NULL;
}

const char *fit_permute(const checker *c, const operation *op, shape *out)
{
    const shape *x = shape_at(c, op->x[0]);
    unsigned seen = 0;
    NEED(op->l[0].count == x->rank, "these are not all axes");
    out->rank = x->rank;
    for (int i = 0; i < x->rank; i++) {
        int32_t axis = op->l[0].at[i];
        NEED(axis < x->rank && !(seen >> axis & 1), "these are not all axes");
        seen |= 1u << axis;
        out->side[i] = x->side[axis];
    }
    return NULL;
}

const char *fit_slice(const checker *c, const operation *op, shape *out)
{
    int64_t axis = op->n[0], start = op->n[1], step = op->n[2], count = op->n[3];
    *out = *shape_at(c, op->x[0]);
    NEED(axis < out->rank, "there is no such axis");
    NEED(step >= 1 && count >= 1, "a slice is empty");
    NEED(start + step * (count - 1) < out->side[axis], "a slice ends outside");
    out->side[axis] = count;
    return NULL;
}

const char *fit_pad(const checker *c, const operation *op, shape *out)
{
    *out = *shape_at(c, op->x[0]);
    NEED(op->n[0] < out->rank, "there is no such axis");
    out->side[op->n[0]] += (int64_t)op->n[1] + op->n[2];
    return NULL;
}

const char *fit_expand(const checker *c, const operation *op, shape *out)
{
    const shape *x = shape_at(c, op->x[0]);
    shape both;
    from_list(op, out);
    NEED(x->rank <= out->rank && !broadcast(x, out, &both) && same_shape(&both, out), "it is not part of that shape");
    return NULL;
}

const char *fit_max_pool(const checker *c, const operation *op, shape *out)
{
    const shape *x = shape_at(c, op->x[0]);
    int axes = op->l[0].count, dilated = op->row->code == 24;
    NEED(axes >= 1 && axes <= 2 && axes <= x->rank, "a window has too many axes, or none");
    for (int i = 0; i < axes && i < op->l[2].count; i++)
        NEED(2 * (int64_t)op->l[2].at[i] <= op->l[0].at[i], "too much padding");
    NEED(are_flags(op->n[0], dilated ? 0 : op->n[1]), "a flag is neither 0 nor 1");
    return windows(x, op->l[0].at, axes, op, 1, dilated, op->n[0], out);
}

const char *fit_avg_pool(const checker *c, const operation *op, shape *out) { return fit_max_pool(c, op, out); }

const char *fit_adaptive(const checker *c, const operation *op, shape *out)
{
    int axes = op->l[0].count;
    *out = *shape_at(c, op->x[0]);
    NEED(axes >= 1 && axes <= 2 && axes <= out->rank, "a window has too many axes, or none");
    for (int i = 0; i < axes; i++)
        out->side[out->rank - axes + i] = op->l[0].at[i];
    return NULL;
}

const char *fit_reduce(const checker *c, const operation *op, shape *out)
{
    const shape *x = shape_at(c, op->x[0]);
    int next = 0;
    NEED(op->l[0].count > 0, "there are no axes");
    for (int i = 0; i < op->l[0].count; i++)
        NEED(op->l[0].at[i] < x->rank && (i == 0 || op->l[0].at[i] > op->l[0].at[i - 1]), "these are no rising axes");
    NEED(are_flags(op->n[0], 0), "a flag is neither 0 nor 1");
    out->rank = 0;
    for (int i = 0; i < x->rank; i++) {
        int gone = next < op->l[0].count && op->l[0].at[next] == i;
        next += gone;
        if (!gone || op->n[0])
            out->side[out->rank++] = gone ? 1 : x->side[i];
    }
    return NULL;
}

const char *fit_softmax(const checker *c, const operation *op, shape *out)
{
    *out = *shape_at(c, op->x[0]);
    NEED(op->n[0] < out->rank, "there is no such axis");
    return NULL;
}

const char *fit_constant(const checker *c, const operation *op, shape *out)
{
    (void)c;
    from_list(op, out);
    NEED(numbers_of(out) == op->real_count, "there are not as many numbers");
    return NULL;
}

const char *fit_dropout(const checker *c, const operation *op, shape *out)
{
    *out = *shape_at(c, op->x[0]);
    NEED(op->r[0] >= 0 && op->r[0] <= 1, "that is no probability");
    NEED(are_flags(op->n[0], 0), "a flag is neither 0 nor 1");
    return NULL;
}

const char *fit_upsample(const checker *c, const operation *op, shape *out)
{
    int axes = op->l[0].count;
    *out = *shape_at(c, op->x[0]);
    NEED(axes >= 1 && axes <= out->rank, "the factors do not fit");
    for (int i = 0; i < axes; i++) {
        NEED(op->l[0].at[i] >= 1, "a factor is 0");
        out->side[out->rank - axes + i] *= op->l[0].at[i];
    }
    return NULL;
}

const char *fit_prelu(const checker *c, const operation *op, shape *out)
{
    const shape *w = shape_at(c, op->x[1]);
    *out = *shape_at(c, op->x[0]);
    int is_first = out->rank > 0 ? w->rank == 1 && w->side[0] == out->side[0] : w->rank == 0;
    NEED(is_first || (w->rank == 1 && w->side[0] == 1), "the weight does not fit");
    return NULL;
}

/* Products for each number of the result; of poolings numbers seen, of all else 1. */
int64_t products_of(const checker *c, const operation *op, const shape *out)
{
    const shape *x = op->operands ? shape_at(c, op->x[0]) : NULL, *w = op->operands > 1 ? shape_at(c, op->x[1]) : NULL;
    int64_t found = 1;
    switch (op->row->code) {
    case 1: return w->side[1];
    case 2: return product(w->side + 1, w->rank - 1);
    case 7: case 8: return w->side[0] / out->side[1] * (w->side[1] + out->side[1]);
    case 9: {
        int64_t last = out->side[out->rank - 1], wide = x->side[x->rank - 1];
        return w->side[w->rank - 2] * (1 + (wide + last - 1) / last);
    }
    case 10: return x->side[x->rank - 1];
    case 24: case 25:
        for (int i = 0; i < op->l[0].count; i++)
            found *= op->l[0].at[i];
        return found;
    case 26:
        for (int i = 0; i < op->l[0].count; i++)
            found *= x->side[x->rank - op->l[0].count + i] / op->l[0].at[i] + 2;
        return found;
    default: return 1;
    }
}
