/* min(max(x, low), high) = m + z: with a = low - m, b = high - m E z = a P(z < a) + b P(z > b) + E between.
   Then all of it times `factor` plus `shift`. */
static void clipped_moments(const float *m, const float *v, float *y, float *yv, int n, float low, float high,
                            float factor, float shift)
{
    for (int i = 0; i < n; i++) {
        float mean = m[i], std = sqrtf(v[i] < 1e-37f ? 1e-37f : v[i]), a = low - mean, b = high - mean;
        a = a < -40 * std ? -40 * std : a, b = b > 40 * std ? 40 * std : b;
        float below = 0.5f * erfcf(-a / std * 0.70710678f), under = 0.5f * erfcf(-b / std * 0.70710678f);
        float beyond = 0.5f * erfcf(b / std * 0.70710678f);
        float left = std * 0.39894228f * expf(-0.5f * (a / std) * (a / std));
        float right = std * 0.39894228f * expf(-0.5f * (b / std) * (b / std));
        float first = a * below + b * beyond + left - right;
        float second = a * a * below + b * b * beyond + v[i] * (under - below) + a * left - b * right;
        float spread = second - first * first;
        y[i] = (mean + first) * factor + shift;
        yv[i] = spread < 0 ? 0 : spread * factor * factor;
    }
}
