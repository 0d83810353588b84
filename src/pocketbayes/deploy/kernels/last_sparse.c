/* Variances of the last layer's outputs, for a certain x. */
static void last_sparse(const weights *w, const float *x, float *y, int inputs, int outputs)
{
    cursor at = first_of(w);
    for (int o = 0; o < outputs; o++, at.place -= inputs)
        for (y[o] = w->noise ? w->noise[o] : 0; at.place < inputs; to_next(&at))
            y[o] += variances[w->std[at.number]] * x[at.place] * x[at.place];
}
