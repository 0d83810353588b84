/* A convolution or pooling; lists are rows, columns. */
typedef struct window {
    int channels, outputs, groups;
    int side[2], out[2], kernel[2], stride[2], padding[2], dilation[2];
    int counted;                         /* of averages: whether padding counts */
} window;
