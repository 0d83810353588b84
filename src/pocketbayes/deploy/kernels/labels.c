static float binary_entropy(float p)
{
    return (p > 0 ? -p * logf(p) : 0) + (p < 1 ? -(1 - p) * logf(1 - p) : 0);
}

/* Of every label: probs = mean p over draws, aleatoric = mean entropy of p, epistemic the rest of that of probs. */
static void tell(const float *m, float *v, float *power, answers *a)
{
    (void)power;
    for (int k = 0; k < OUTPUTS; k++) {
        float mean = 0, inside = 0, std = v ? sqrtf(v[k] * spread_factor) : 0;
        for (int s = 0; s < DRAWS; s++) {
            float p = 1 / (1 + expf(-(m[k] + std * NORMAL(s, k)) / temperature));
            mean += p / DRAWS;
            inside += binary_entropy(p) / DRAWS;
        }
        float entropy = binary_entropy(mean);
        a->probs[k] = mean;
        a->entropy[k] = entropy;
        a->aleatoric[k] = inside;
        a->epistemic[k] = DRAWS > 1 && entropy > inside ? (entropy - inside) * DRAWS / (DRAWS > 1 ? DRAWS - 1 : 1) : 0;
        a->label[k] = mean > 0.5f;
    }
}
