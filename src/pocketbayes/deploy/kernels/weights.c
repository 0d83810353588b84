/* A linear operation: W = scale codes, variances of W factor variances[std]; 0: none, certain, dense or 1. */
typedef struct weights {
    const mean_code *mean;
    const uint8_t *std, *gap;
    const float *scale, *shift, *factor, *noise;   /* one an output; what is added, and its variance */
    int count;
} weights;
