/* Mean and variance of max(x, 0), x ~ N(m, v): with a = m / s mean = m P + s phi(a) and
   variance = v P + mean (m - mean), P = P(x > 0) = Phi(a). */
static void half_moments(float m, float v, float *mean, float *variance, float *above)
{
    float std = sqrtf(v < 1e-37f ? 1e-37f : v), a = m / std;
    int is_near = a > -10 && a < 10;     /* beyond 10 stds nothing is left that a float would show */
    float p = is_near ? 0.5f * erfcf(-0.70710678f * a) : a > 0, density = is_near ? expf(-0.5f * a * a) : 0;
    float found = m * p + std * 0.39894228f * density, spread = v * p + found * (m - found);
    *mean = found;
    *variance = spread < 0 ? 0 : spread;   /* NaN stays */
    *above = p;
}
