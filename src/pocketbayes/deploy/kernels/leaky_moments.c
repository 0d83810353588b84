/* c x + (1 - c) max(x, 0): Cov(x, max(x, 0)) = v P(x > 0); a ReLU has c = 0, an absolute value -1. */
static void leaky_moments(const float *m, const float *v, float *y, float *yv, int n, float c)
{
    for (int i = 0; i < n; i++) {
        float half, spread, above, rest = 1 - c, mean = m[i], variance = v[i];
        half_moments(mean, variance, &half, &spread, &above);
        spread = c * c * variance + rest * rest * spread + 2 * c * rest * variance * above;
        y[i] = c * mean + rest * half;
        yv[i] = spread < 0 ? 0 : spread;
    }
}
