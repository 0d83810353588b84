/* engine/answers.c: from draws of outputs to what a prediction holds (pocketbayes.prediction.summaries). */
#include "inside.h"
#include "scalars.h"
#include <stdio.h>
#include <string.h>

static const char *const NAMES[] = {"categorical", "bernoulli", "gaussian", "heteroscedastic", "student-t", "poisson", "negative-binomial"};

static int likelihood_of(const pocket *m)
{
    for (int i = 0; m->facts.likelihood && i < LIKELIHOODS; i++)
        if (!strcmp(NAMES[i], m->facts.likelihood))
            return i;
    return m->facts.likelihood ? LIKELIHOODS : CATEGORICAL;
}

/* A parameter that was learned beside the weights, one for each output; NULL: it never was. */
static const float *learned(const pocket *m, const char *name)
{
    for (uint32_t i = 0; i < m->file->count; i++) {
        const char *own = m->file->weights[i].name, *end = strrchr(own, '.');
        if (!strcmp(end ? end + 1 : own, name) && m->file->weights[i].size == m->outputs)
            return m->file->weights[i].mean;
    }
    return NULL;
}

size_t output_width(const pocket *m)
{
    const shape *s = &m->slots[m->program.output].shape;
    return s->rank ? (size_t)s->side[0] : 1;
}

void answers_room(pocket *m)
{
    size_t most = (size_t)(m->options.most_draws > 1 ? m->options.most_draws : 1), members = (size_t)m->members;
    most = (most + members - 1) / members * members;
    m->draws = take(m, most * ROWS * m->outputs + 2 * ROWS * m->outputs + 2 * most, sizeof(float));
    m->normals = take(m, most * m->outputs, sizeof(float));
    m->work = take(m, normals_room((int)most, (int)output_width(m)), sizeof(double));
}

int answers_plan(pocket *m)
{
    int how = likelihood_of(m);
    if (how == LIKELIHOODS)
        return snprintf(m->error, 256, "the likelihood %.40s is none that this engine knows", m->facts.likelihood), 1;
    if (how == HETEROSCEDASTIC && m->slots[m->program.output].shape.side[0] % 2)
        return snprintf(m->error, 256, "a heteroscedastic model has an odd number of outputs"), 1;
    m->kind = how == CATEGORICAL ? POCKET_CLASSES : how == BERNOULLI ? POCKET_LABELS : POCKET_VALUES;
    answers_room(m);
    return m->error[0] || head_plan(m);
}

static float plogp(float p) { return p > 0 ? -p * logf(p) : 0; }

static float bounded(float x, float most)
{
    float inside = x < -most ? -most : x > most ? most : x;
    return inside + tanhf(x - inside);
}

/* probs += share softmax(x factor); gives the entropy of that softmax, log sum exp(t) - mean t. */
static float add_softmax(const float *x, size_t n, size_t step, float factor, float share, float *restrict probs,
                         float *restrict power)
{
    float most = x[0], sum = 0, mixed = 0;
    for (size_t c = 1; c < n; c++)
        most = x[c * step] > most ? x[c * step] : most;
    for (size_t c = 0; c < n; c++)
        power[c] = exponential((x[c * step] - most) * factor);
    for (size_t c = 0; c < n; c++) {
        sum += power[c];
        mixed += power[c] == 0 ? 0 : power[c] * (x[c * step] - most) * factor;
    }
    for (size_t c = 0; c < n; c++)
        probs[c] += power[c] * (share / sum);
    return logf(sum) - mixed / sum;
}

/* probs = mean p; entropy of probs; aleatoric = mean entropy; epistemic = S / (S - 1) of the rest. As the others
   it gives whether all that is told is finite. */
static int tell_classes(const pocket *m, told d, size_t row, const pocket_answer *a)
{
    size_t classes = (size_t)m->slots[m->program.output].shape.side[0], positions = m->outputs / classes;
    float divisor = m->facts.temperature > 0 ? m->facts.temperature : 1;
    float *probs = m->draws + (size_t)d.draws * ROWS * m->outputs;
    int good = 1;
    for (size_t p = 0; p < positions; p++) {
        double entropy = 0, inside = 0;
        size_t best = 0, to = row * positions + p;
        memset(probs, 0, classes * sizeof *probs);
        for (int i = 0; i < d.draws; i++)
            inside += (double)add_softmax(d.x + (size_t)i * d.step + p, classes, positions, 1 / divisor, 1 / (float)d.draws,
                                          probs, probs + classes) / d.draws;
        for (size_t c = 0; c < classes; c++) {
            entropy += (double)plogp(probs[c]);
            best = probs[c] > probs[best] ? c : best;
            if (a->probs)
                a->probs[row * m->outputs + c * positions + p] = probs[c];
        }
        double rest = entropy > inside ? entropy - inside : 0;
        good &= isfinite(inside) != 0;
        if (a->entropy) a->entropy[to] = (float)entropy;
        if (a->aleatoric) a->aleatoric[to] = (float)inside;
        if (a->epistemic) a->epistemic[to] = d.draws > 1 ? (float)(rest * d.draws / (d.draws - 1)) : 0;
        if (a->label) a->label[to] = (int32_t)best;
    }
    return good;
}

/* The same of every label by itself. */
static int tell_labels(const pocket *m, told d, size_t row, const pocket_answer *a)
{
    float divisor = m->facts.temperature > 0 ? m->facts.temperature : 1;
    int good = 1;
    for (size_t k = 0; k < m->outputs; k++) {
        double mean = 0, inside = 0;
        size_t to = row * m->outputs + k;
        for (int s = 0; s < d.draws; s++) {
            float p = 1 / (1 + expf(-d.x[(size_t)s * d.step + k] / divisor));
            mean += (double)p / d.draws;
            inside += (double)(plogp(p) + plogp(1 - p)) / d.draws;
        }
        good &= isfinite(mean) != 0;
        double entropy = (double)(plogp((float)mean) + plogp((float)(1 - mean))), rest = entropy > inside ? entropy - inside : 0;
        if (a->probs) a->probs[to] = (float)mean;
        if (a->entropy) a->entropy[to] = (float)entropy;
        if (a->aleatoric) a->aleatoric[to] = (float)inside;
        if (a->epistemic) a->epistemic[to] = d.draws > 1 ? (float)(rest * d.draws / (d.draws - 1)) : 0;
        if (a->label) a->label[to] = mean > 0.5;
    }
    return good;
}

/* Location and variance of target k given an output. */
static void part_of(const pocket *m, int how, const float *x, size_t k, float *location, float *variance)
{
    const float *first = learned(m, how == GAUSSIAN ? "noise_log_std" : how == STUDENT_T ? "noise_log_scale" : "noise_log_dispersion");
    const float *freedom = how == STUDENT_T ? learned(m, "noise_log_freedom") : NULL;
    float log_noise = first ? first[k] : how == NEGATIVE_BINOMIAL ? -15 : -13.8155106f;
    *location = x[k];
    switch (how) {
    case GAUSSIAN: *variance = expf(2 * log_noise); break;
    case HETEROSCEDASTIC: *variance = expf(bounded(x[k + m->outputs / 2], 20)); break;
    case STUDENT_T: {
        float rest = expf(bounded(freedom ? freedom[k] : 1.38629436f, 10));
        *variance = expf(2 * log_noise) * (2 + rest) / rest;
        break;
    }
    case POISSON: *location = *variance = expf(bounded(x[k], 30)); break;
    default:
        *location = expf(bounded(x[k], 30));
        *variance = *location + expf(bounded(log_noise, 15)) * *location * *location;
    }
}

/* What all draws share beside location and variance: a t's degrees of freedom, or a dispersion. */
static double shared_of(const pocket *m, int how, size_t k)
{
    const float *found = learned(m, how == STUDENT_T ? "noise_log_freedom" : "noise_log_dispersion");
    float log_dispersion = found ? found[k] : -15, log_freedom = found ? found[k] : 1.38629436f;
    return how == STUDENT_T ? 2 + exp((double)bounded(log_freedom, 10)) : exp((double)bounded(log_dispersion, 15));
}

/* mean, aleatoric = mean variance, epistemic = variance of means; a temperature widens all of it. */
static int tell_values(const pocket *m, told d, size_t row, const pocket_ask *ask, const pocket_answer *a)
{
    int how = likelihood_of(m), draws = d.draws, good = 1;
    size_t targets = how == HETEROSCEDASTIC ? m->outputs / 2 : m->outputs;
    float factor = m->facts.temperature > 0 ? m->facts.temperature : 1;
    size_t most = (size_t)draws;
    float *location = m->draws + (size_t)draws * ROWS * m->outputs + 2 * ROWS * m->outputs, *variance = location + most;
    for (size_t k = 0; k < targets; k++) {
        double mean = 0, inside = 0, apart = 0;
        size_t to = row * targets + k;
        for (int s = 0; s < draws; s++) {
            part_of(m, how, d.x + (size_t)s * d.step, k, &location[s], &variance[s]);
            mean += (double)location[s] / draws;
        }
        for (int s = 0; s < draws; s++) {
            location[s] = (float)(mean + (double)factor * ((double)location[s] - mean));
            variance[s] *= factor * factor;
            inside += (double)variance[s] / draws;
            apart += ((double)location[s] - mean) * ((double)location[s] - mean) / (draws > 1 ? draws - 1 : 1);
        }
        double std = sqrt(inside + apart);
        good &= isfinite((float)(inside + apart)) != 0;
        if (a->mean) a->mean[to] = (float)mean;
        if (a->aleatoric) a->aleatoric[to] = (float)inside;
        if (a->epistemic) a->epistemic[to] = (float)apart;
        if (a->std) a->std[to] = (float)std;
        for (int s = 0; s < draws && d.is_gaussian && draws > 1 && how <= HETEROSCEDASTIC; s++)   /* no gaps between the draws */
            location[s] = (float)mean, variance[s] += (float)apart;
        double tail = (1 - (double)ask->level) / 2, own = shared_of(m, how, k);
        if (a->lower) a->lower[to] = mixed_quantile(how, own, location, variance, draws, mean, std, tail);
        if (a->upper) a->upper[to] = mixed_quantile(how, own, location, variance, draws, mean, std, 1 - tail);
    }
    return good;
}

/* Mean and variance over draws of the outputs themselves; draws that are asked for must be finite, each. */
static int tell_outputs(const pocket *m, told d, size_t row, size_t rows, const pocket_answer *a)
{
    int good = 1;
    for (int s = 0; a->samples && s < d.draws; s++)
        for (size_t k = 0; k < m->outputs; k++) {
            float x = d.x[(size_t)s * d.step + k];
            good &= isfinite(x) != 0;
            a->samples[((size_t)s * rows + row) * m->outputs + k] = x;
        }
    for (size_t k = 0; k < m->outputs && (a->outputs || a->variances); k++) {
        double mean = 0, apart = 0;
        for (int s = 0; s < d.draws; s++)
            mean += (double)d.x[(size_t)s * d.step + k] / d.draws;
        for (int s = 0; s < d.draws; s++)
            apart += ((double)d.x[(size_t)s * d.step + k] - mean) * ((double)d.x[(size_t)s * d.step + k] - mean);
        if (a->outputs) a->outputs[row * m->outputs + k] = (float)mean;
        if (a->variances) a->variances[row * m->outputs + k] = d.draws > 1 ? (float)(apart / (d.draws - 1)) : 0;
    }
    return good;
}

int tell(const pocket *m, told d, size_t row, size_t rows, const pocket_ask *ask, const pocket_answer *a)
{
    int good = tell_outputs(m, d, row, rows, a);
    return good & (m->kind == POCKET_CLASSES ? tell_classes(m, d, row, a)
                   : m->kind == POCKET_LABELS ? tell_labels(m, d, row, a) : tell_values(m, d, row, ask, a));
}
