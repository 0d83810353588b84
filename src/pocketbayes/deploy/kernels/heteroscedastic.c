/* t, and from 20 on 20 + tanh(t - 20). */
static float bounded(float t)
{
    float inside = t < -20 ? -20 : t > 20 ? 20 : t;
    return inside + tanhf(t - inside);
}

/* x with mean_s P(|N(0, variance_s)| < x) = level, by bisection up to Chebyshev's bound. */
static float quantile(const float *variance, float std)
{
    float low = 0, high = std / sqrtf(1 - interval_level);
    for (int i = 0; i < 26; i++) {
        float middle = (low + high) / 2, beyond = 0;
        for (int s = 0; s < DRAWS; s++)
            beyond += erfcf(middle / sqrtf(2 * variance[s] + 1e-37f)) / DRAWS;
        if (beyond > 1 - interval_level)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

/* The first half of the outputs are means, the second log variances of noise: aleatoric is their mean over draws. */
static void tell(const float *m, float *v, float *work, answers *a)
{
    for (int k = 0; k < OUTPUTS / 2; k++) {
        float widened = temperature * temperature, inside = 0;
        float epistemic = v ? v[k] * spread_factor * widened : 0, std = v ? sqrtf(v[k + OUTPUTS / 2] * spread_factor) : 0;
        for (int s = 0; s < DRAWS; s++) {
            work[s] = expf(bounded(m[k + OUTPUTS / 2] + std * NORMAL(s, k + OUTPUTS / 2))) * widened;
            inside += work[s] / DRAWS;
            work[s] += epistemic;
        }
        a->mean[k] = m[k];
        a->aleatoric[k] = inside;
        a->epistemic[k] = epistemic;
        a->std[k] = sqrtf(inside + epistemic);
        float far = reach[k] > 0 ? reach[k] * a->std[k] : quantile(work, a->std[k]);
        a->lower[k] = m[k] - far;
        a->upper[k] = m[k] + far;
    }
}
