static float between(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

/* Mean and variance of outputs over draws, told by the head from features, outputs among them: with
   z = (features - center) scale, at each place d = log(1 + mean z^2), r = log mean features^2,
   h = relu(inner z + b), e the entropy of softmax(outputs): (t, u, s) = outer [h, d, r, e] + b',
   mean = outputs exp(t) + u unit, variance = exp(s) last^slope. `variance` holds the last layer's. */
static void spread(float *x, float *known, float *mean, float *variance)
{
    const float *outputs = x + FEATURES - OUTPUTS;
    float most = outputs[0], sum = 0, mixed = 0, *size = known + HIDDEN;
    for (int k = 0; k < OUTPUTS; k++)
        mean[k] = outputs[k], most = outputs[k] > most ? outputs[k] : most;
    for (int k = 0; k < OUTPUTS; k++)
        sum += expf(outputs[k] - most), mixed += expf(outputs[k] - most) * (outputs[k] - most);
    size[2 * PLACES + 1] = logf(sum) - mixed / sum;
    for (int j = 0, f = 0; j <= PLACES; j++) {
        float apart = 0, square = j < PLACES ? place_lost[j] : 0;
        for (int end = f + place_width[j]; f < end; f++) {
            square += feature_counts[f] ? x[f] * x[f] : 0;
            x[f] = (x[f] - feature_center[f]) * feature_scale[f];
            apart += x[f] * x[f];
        }
        size[j] = logf(1 + apart / place_varying[j]);
        if (j < PLACES)
            size[PLACES + 1 + j] = logf(square < 1e-12f * place_total[j] ? 1e-12f : square / place_total[j]);
    }
    linear_dense(&head_inner, x, known, 1, FEATURES, HIDDEN);
    for (int i = 0; i < HIDDEN; i++)
        known[i] = between(known[i], 0, 50);
    float *found = known + HIDDEN + 2 * PLACES + 2;
    linear_dense(&head_outer, known, found, 1, HIDDEN + 2 * PLACES + 2, 2 * OUTPUTS + 1);
    for (int i = 0; i < 2 * OUTPUTS + 1; i++)
        found[i] = between(found[i], -20, 20);
    for (int k = 0; k < OUTPUTS; k++) {
        float least = 0.01f * head_unit[k], factor = expf(found[1 + OUTPUTS + k]);
        mean[k] = mean[k] * expf(found[0]) + found[1 + k] * head_unit[k];
        if (KNOWS_LAST)
            factor *= powf(variance[k] + least * least, head_slope[k]);
        variance[k] = factor > 1e30f ? 1e30f : factor;
    }
}
