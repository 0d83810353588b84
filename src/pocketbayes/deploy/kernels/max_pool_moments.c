/* Mean and variance of the larger of two (Clark, 1961): x + max(y - x, 0), x that of the larger mean. */
static void larger_moments(float m, float v, float n, float w, float *mean, float *variance)
{
    float half, spread, above, own = m >= n ? v : w, apart = m >= n ? n - m : m - n;
    half_moments(apart, v + w, &half, &spread, &above);
    spread += own * (1 - 2 * above);
    *mean = half + (m > n ? m : n);
    *variance = spread < 0 ? 0 : spread;
}

/* The largest of independent Gaussians: half of a window against half, until one is left. */
static void max_pool_moments(const window *g, const float *x, const float *v, float *y, float *yv)
{
    float m[WINDOW], s[WINDOW];
    for (int c = 0; c < g->channels; c++, x += g->side[0] * g->side[1], v += g->side[0] * g->side[1])
        for (int i = 0; i < g->out[0]; i++)
            for (int j = 0; j < g->out[1]; j++, y++, yv++) {
                int n = 0;
                for (int a = 0; a < g->kernel[0]; a++)
                    for (int b = 0; b < g->kernel[1]; b++, n++) {
                        int row = i * g->stride[0] + a * g->dilation[0] - g->padding[0];
                        int column = j * g->stride[1] + b * g->dilation[1] - g->padding[1];
                        int is_in = row >= 0 && row < g->side[0] && column >= 0 && column < g->side[1];
                        m[n] = is_in ? x[row * g->side[1] + column] : -1e15f;
                        s[n] = is_in ? v[row * g->side[1] + column] : 0;
                    }
                for (int half = n / 2; n > 1; n = n - half, half = n / 2) {
                    for (int k = 0; k < half; k++)
                        larger_moments(m[k], s[k], m[k + half], s[k + half], &m[k], &s[k]);
                    if (n % 2)
                        m[half] = m[n - 1], s[half] = s[n - 1];
                }
                *y = m[0], *yv = s[0];
            }
}
