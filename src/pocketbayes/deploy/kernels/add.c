/* x + sign z: a sum, a difference, or, of variances, always a sum. */
static void add(const float *x, const float *z, float sign, float *y, int n)
{
    for (int i = 0; i < n; i++)
        y[i] = x[i] + sign * z[i];
}
