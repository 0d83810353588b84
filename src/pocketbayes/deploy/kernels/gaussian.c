/* A Gaussian around the output's: aleatoric is the noise, epistemic the output's variance. */
static void tell(const float *m, float *v, float *work, answers *a)
{
    (void)work;
    for (int k = 0; k < OUTPUTS; k++) {
        float epistemic = v ? v[k] * spread_factor * temperature * temperature : 0;
        a->mean[k] = m[k];
        a->aleatoric[k] = noise_variance[k] * temperature * temperature;
        a->epistemic[k] = epistemic;
        a->std[k] = sqrtf(a->aleatoric[k] + epistemic);
        a->lower[k] = m[k] - reach[k] * a->std[k];
        a->upper[k] = m[k] + reach[k] * a->std[k];
    }
}
