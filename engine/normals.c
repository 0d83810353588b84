/* engine/normals.c: the numbers that stand for a Gaussian, those of pocketbayes.prediction.spread_normals:
   scrambled Sobol points give signs and an order of sizes, which are equally likely ones; in pairs z and -z. */
#include "inside.h"
#include "sobol.h"
#include <math.h>
#include <string.h>

enum { TWISTED = 624, LAG = 397, BITS = 30, SEED = 20 };

/* The Mersenne twister MT19937 (Matsumoto and Nishimura 1998), whose lowest bits torch scrambles by. */
typedef struct twister { uint32_t state[TWISTED]; int next; } twister;

static void twister_begin(twister *t)
{
    t->state[0] = SEED;
    for (uint32_t i = 1; i < TWISTED; i++)
        t->state[i] = 1812433253u * (t->state[i - 1] ^ t->state[i - 1] >> 30) + i;
    t->next = TWISTED;
}

static uint32_t coin(twister *t)
{
    for (int i = 0; t->next == TWISTED && i < TWISTED; i++) {
        uint32_t both = (t->state[i] & 0x80000000u) | (t->state[(i + 1) % TWISTED] & 0x7fffffffu);
        t->state[i] = t->state[(i + LAG) % TWISTED] ^ both >> 1 ^ (both & 1 ? 0x9908b0dfu : 0);
    }
    t->next %= TWISTED;
    uint32_t x = t->state[t->next++];
    x ^= x >> 11;
    x ^= x << 7 & 0x9d2c5680u;
    x ^= x << 15 & 0xefc60000u;
    return (x ^ x >> 18) & 1;
}

static uint32_t parity(uint32_t x)
{
    for (int shift = 16; shift; shift /= 2)
        x ^= x >> shift;
    return x & 1;
}

/* Direction numbers of dimension d, times a random lower triangular matrix of bits with ones on its diagonal. */
static void scramble(twister *t, int d, uint32_t *direction)
{
    memset(direction, 0, SOBOL_BITS * sizeof *direction);
    for (int p = 0; p < BITS; p++) {
        uint32_t row = 0;
        for (int k = 0; k < BITS; k++)
            row |= (coin(t) && k < p ? 1u : k == p) << (BITS - 1 - k);
        for (int j = 0; j < SOBOL_BITS; j++) {
            uint32_t v = (j ? SOBOL[d * (SOBOL_BITS - 1) + j - 1] : 1u) << (BITS - 1 - j);
            direction[j] |= parity(row & v) << (BITS - 1 - p);
        }
    }
}

/* z with P(Z < z) = p, for p from 1/2 on, by Newton's method from a rough start. */
static double quantile(double p)
{
    double z = 4.91 * (pow(p, 0.14) - pow(1 - p, 0.14));
    for (int i = 0; i < 5; i++)
        z += (0.5 * erfc(z * 0.70710678118654752) - (1 - p)) / (0.3989422804014327 * exp(-z * z / 2));
    return z;
}

/* One dimension: signs and ranks of the points about 1/2; `point` is room for half of them. */
static void stratify(float *z, int half, int dimensions, const double *point)
{
    for (int i = 0; i < half; i++) {
        int rank = 0;
        for (int j = 0; j < half; j++)
            rank += fabs(point[j]) < fabs(point[i]);
        double size = quantile((rank + 0.5) / (2 * (double)half) + 0.5);
        z[i * dimensions] = (float)(point[i] < 0 ? -size : size);
    }
}

/* Cyclic Jacobi rotations: a becomes diagonal, v its eigenvectors in columns. */
static void diagonalise(double *a, double *v, int n)
{
    for (int i = 0; i < n * n; i++)
        v[i] = i % (n + 1) == 0;
    for (int sweep = 0; sweep < 30; sweep++) {
        double rest = 0;
        for (int p = 0; p < n; p++)
            for (int q = p + 1; q < n; q++) {
                double off = a[p * n + q];
                rest += off * off;
                if (fabs(off) < 1e-15)
                    continue;
                double theta = (a[q * n + q] - a[p * n + p]) / (2 * off);
                double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1)), c = 1 / sqrt(t * t + 1), s = t * c;
                for (int k = 0; k < n; k++) {
                    double x = a[k * n + p], y = a[k * n + q];
                    a[k * n + p] = c * x - s * y, a[k * n + q] = s * x + c * y;
                }
                for (int k = 0; k < n; k++) {
                    double x = a[p * n + k], y = a[q * n + k];
                    a[p * n + k] = c * x - s * y, a[q * n + k] = s * x + c * y;
                    x = v[k * n + p], y = v[k * n + q];
                    v[k * n + p] = c * x - s * y, v[k * n + q] = s * x + c * y;
                }
            }
        if (rest < 1e-24)
            break;
    }
}

static void scale(float *z, int half, int n, int number)
{
    for (int d = 0; d < n; d++) {
        double square = 0;
        for (int i = 0; i < half; i++)
            square += 2 * (double)z[i * n + d] * (double)z[i * n + d] / (number - 1);
        for (int i = 0; i < half; i++)
            z[i * n + d] = (float)((double)z[i * n + d] / sqrt(square));
    }
}

/* Whether the points lie in a plane, as 4 in 3 dimensions do; a has the variances on its diagonal. */
static int is_flat(const double *a, int n)
{
    double least = a[0], most = a[0];
    for (int d = 1; d < n; d++) {
        double variance = a[d * n + d];
        least = variance < least ? variance : least;
        most = variance > most ? variance : most;
    }
    return least < 1e-9 * most;
}

/* z times the inverse root of its covariance: C^(-1/2) = V diag(w^(-1/2)) V^T. */
static void whiten(float *z, int half, int n, int number, double *work)
{
    double *a = work, *v = a + n * n, *row = v + n * n;
    for (int p = 0; p < n; p++)
        for (int q = 0; q < n; q++) {
            a[p * n + q] = 0;
            for (int i = 0; i < half; i++)
                a[p * n + q] += 2 * (double)z[i * n + p] * (double)z[i * n + q] / (number - 1);
        }
    diagonalise(a, v, n);
    if (is_flat(a, n)) {
        scale(z, half, n, number);
        return;
    }
    for (int i = 0; i < half; i++) {
        for (int p = 0; p < n; p++)
            row[p] = 0;
        for (int e = 0; e < n; e++) {
            double along = 0;
            for (int q = 0; q < n; q++)
                along += (double)z[i * n + q] * v[q * n + e];
            for (int p = 0; p < n; p++)
                row[p] += along / sqrt(a[e * n + e]) * v[p * n + e];
        }
        for (int p = 0; p < n; p++)
            z[i * n + p] = (float)row[p];
    }
}

size_t normals_room(int number, int dimensions)
{
    size_t n = (size_t)dimensions, matrix = number / 2 > dimensions ? 2 * n * n + n : 0, half = (size_t)number / 2;
    size_t points = (sizeof(twister) + sizeof(uint32_t) * n) / sizeof(double) + 2 + half;
    return matrix > points ? matrix : points;
}

/* (number, dimensions); more points or dimensions than the table has are spread in the plain way. */
void spread_normals(float *z, int number, int dimensions, double *work)
{
    int half = number / 2;
    if (dimensions > SOBOL_DIMENSIONS || half > 1 << SOBOL_BITS) {
        plain_normals(z, number, dimensions);
        return;
    }
    double *point = work;
    twister *t = (twister *)(void *)(point + half);
    uint32_t *shift = (uint32_t *)(void *)(t + 1), direction[SOBOL_BITS];
    twister_begin(t);
    for (int d = 0; d < dimensions; d++) {
        shift[d] = 0;
        for (int k = 0; k < BITS; k++)
            shift[d] |= coin(t) << k;
    }
    for (int d = 0; d < dimensions; d++) {
        uint32_t x = shift[d];
        scramble(t, d, direction);
        for (int i = 0; i < half; i++) {
            int bit = 0;
            while (i && (i - 1) >> bit & 1)
                bit++;
            x ^= i ? direction[bit] : 0;
            point[i] = (double)x / (1 << BITS) - 0.5;
        }
        stratify(z + d, half, dimensions, point);
    }
    if (half > dimensions)
        whiten(z, half, dimensions, number, work);
    else if (half)
        scale(z, half, dimensions, number);
    for (int i = 0; i < half * dimensions; i++)
        z[half * dimensions + i] = -z[i];
    for (int d = 0; number % 2 && d < dimensions; d++)
        z[(number - 1) * dimensions + d] = 0;
}
