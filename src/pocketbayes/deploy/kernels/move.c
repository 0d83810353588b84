/* y[sum_i at_i to_i] = x[sum_i at_i from_i]: parts, places among zeros, other orders of axes. */
static void move(const float *x, float *y, int rank, const int *side, const int *from, const int *to)
{
    for (int i = 0; i < side[0]; i++)
        if (rank > 1)
            move(x + i * from[0], y + i * to[0], rank - 1, side + 1, from + 1, to + 1);
        else
            y[i * to[0]] = x[i * from[0]];
}
