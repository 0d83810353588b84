/* y = f(x), number by number. */
static void apply(function *f, const float *x, float *y, int n, float a, float b)
{
    for (int i = 0; i < n; i++)
        y[i] = f(x[i], a, b);
}
