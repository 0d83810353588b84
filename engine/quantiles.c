/* engine/quantiles.c: ends of intervals: quantiles of what draws say of one target, mixed. */
#include "inside.h"
#include <math.h>

enum { MOST_STEPS = 20000 };             /* series and fractions take some roots of their numbers */
#define LARGEST 1e6                      /* beyond it other forms are as near */

static double log_gamma(double x)
{
    double shift = 0;
    for (; x < 15; x++)
        shift -= log(x);
    return shift + (x - 0.5) * log(x) - x + 0.9189385332046727 + 1 / (12 * x) - 1 / (360 * x * x * x);
}

static double normal_below(double z) { return 0.5 * erfc(-z * 0.7071067811865476); }

/* P(G < x), G of the gamma distribution of shape a, by its series; of a large one as Wilson and Hilferty
   (1931) have it. */
static double gamma_below(double a, double x)
{
    if (x <= 0 || x > a + 12 * sqrt(a) + 100)   /* nothing is left that a double would show */
        return x > 0;
    if (a > LARGEST)
        return normal_below((pow(x / a, 1.0 / 3) - 1 + 1 / (9 * a)) * 3 * sqrt(a));
    double sum = 1 / a, term = sum;
    for (int i = 1; i < MOST_STEPS && term > 1e-13 * sum; i++)
        sum += term *= x / (a + i);
    return sum * exp(a * log(x) - x - log_gamma(a));
}

/* P(B < x), B of the beta distribution of a and b, y = 1 - x: its fraction by Lentz' steps. */
static double beta_fraction(double a, double b, double x, double y)
{
    double c = 1, d = 1 / (1 - (a + b) * x / (a + 1)), all = d;
    for (int i = 1, more = 1; i < MOST_STEPS && more; i++) {
        double even = i * (b - i) * x / ((a + 2 * i - 1) * (a + 2 * i));
        double odd = -(a + i) * (a + b + i) * x / ((a + 2 * i) * (a + 2 * i + 1));
        d = 1 / (1 + even * d), c = 1 + even / c, all *= c * d;
        d = 1 / (1 + odd * d), c = 1 + odd / c, all *= c * d;
        more = fabs(c * d - 1) > 1e-13;
    }
    return x > 0 ? exp(log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * log(x) + b * log(y)) * all / a : 0;
}

/* By the side where steps are few; rounded, x and y may both ask for the other, so that it is asked once. */
static double beta_below(double a, double b, double x, double y)
{
    return x > (a + 1) / (a + b + 2) ? 1 - beta_fraction(b, a, y, x) : beta_fraction(a, b, x, y);
}

/* P(target <= y) of one draw; `own` is a t's degrees of freedom, or a dispersion. */
static double below(int how, double own, double mean, double variance, double y)
{
    double r = 1 / own, shape = mean * mean / variance, z = (y - mean) / sqrt(variance + 1e-60);
    switch (how) {
    case STUDENT_T: {
        double square = z * z * own / (own - 2);
        double far = 0.5 * beta_below(own / 2, 0.5, own / (own + square), square / (own + square));
        return z > 0 ? 1 - far : far;
    }
    case POISSON: return y < 0 ? 0 : 1 - gamma_below(y + 1, mean);
    case NEGATIVE_BINOMIAL:
        if (y > LARGEST)
            return gamma_below(shape, (y + 0.5) * shape / mean);
        return y < 0 ? 0 : beta_below(r, y + 1, r / (r + mean), mean / (r + mean));
    default: return normal_below(z);
    }
}

/* By bisection between Cantelli's bounds; of counts the least with as much up to it. */
float mixed_quantile(int how, double own, const float *location, const float *variance, int draws, double mean, double std, double share)
{
    double odds = sqrt(share / (1 - share)), low = mean - std / odds, high = mean + std * odds;
    int is_whole = how >= POISSON;
    if (is_whole)
        low = -1, high = ceil(high) + 1;
    for (int i = 0; i < (is_whole ? 64 : 28) && !(is_whole && high - low <= 1); i++) {
        double middle = (low + high) / 2, found = 0;
        middle = is_whole ? floor(middle) : middle;
        for (int s = 0; s < draws; s++)
            found += below(how, own, (double)location[s], (double)variance[s], middle) / draws;
        if (found < share)
            low = middle;
        else
            high = middle;
    }
    return (float)(is_whole ? high : (low + high) / 2);
}
