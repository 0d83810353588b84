/* probs = mean p over draws, aleatoric = mean entropy of p, epistemic = S / (S - 1) (entropy of probs - aleatoric). */
static void tell(const float *m, float *v, float *power, answers *a)
{
    float entropy = 0, inside = 0;
    for (int k = 0; k < OUTPUTS; k++) {
        a->probs[k] = 0;
        if (v)
            v[k] = sqrtf(v[k] * spread_factor);
    }
    for (int s = 0; s < DRAWS; s++) {
        float most = -INFINITY, sum = 0, mixed = 0;
        for (int k = 0; k < OUTPUTS; k++) {
            power[k] = (v ? m[k] + v[k] * NORMAL(s, k) : m[k]) / temperature;
            most = power[k] > most ? power[k] : most;
        }
        for (int k = 0; k < OUTPUTS; k++) {
            float apart = power[k] - most;
            power[k] = expf(apart);
            sum += power[k];
            mixed += power[k] * apart;
        }
        for (int k = 0; k < OUTPUTS; k++)
            a->probs[k] += power[k] / (sum * DRAWS);
        inside += (logf(sum) - mixed / sum) / DRAWS;
    }
    a->label = 0;
    for (int k = 0; k < OUTPUTS; k++) {
        float p = a->probs[k];
        entropy -= p > 0 ? p * logf(p) : 0;
        a->label = p > a->probs[a->label] ? k : a->label;
    }
    a->entropy = entropy;
    a->aleatoric = inside;
    a->epistemic = DRAWS > 1 && entropy > inside ? (entropy - inside) * DRAWS / (DRAWS > 1 ? DRAWS - 1 : 1) : 0;
}
