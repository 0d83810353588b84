/* y[start + sum_i at_i to_i] = x[first + sum_i at_i from_i]: parts, zeros beside, other orders of axes. */
static void move(const float *x, float *y, int rank, const int *side, const int *from, const int *to)
{
    if (!rank) {
        *y = *x;
        return;
    }
    for (int i = 0; i < side[0]; i++)
        move(x + i * from[0], y + i * to[0], rank - 1, side + 1, from + 1, to + 1);
}
