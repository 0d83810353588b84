#define COUNT(table) ((int)(sizeof(table) / sizeof(table)[0]))

/* Mean and variance of f(x) by Gauss and Hermite, of f - f(m), so that narrow Gaussians lose no digits. */
static void quadrature(const float *nodes, int count, function *f, const float *m, const float *v, float *y, float *yv, int n,
                       float a, float b)
{
    for (int i = 0; i < n; i++) {
        float mean = m[i], std = sqrtf(v[i]), centre = f(mean, a, b), first = 0, second = 0;
        for (int k = 0; k < count; k++) {
            float apart = f(mean + std * nodes[k], a, b) - centre;
            first += nodes[count + k] * apart;
            second += nodes[count + k] * apart * apart;
        }
        second -= first * first;
        y[i] = centre + first;
        yv[i] = second < 0 ? 0 : second;
    }
}
