/* engine/table.c: all operations: code, name, fields, rule of shapes, means, moments (docs/format.md). */
#include "inside.h"

#define BOTH(name) mean_##name, moments_##name
#define UNARY(code, name) {code, #name, "x", fit_same, BOTH(unary)}
#define PAIR(code, name) {code, #name, "xx", fit_pair, BOTH(pair)}

const row TABLE[] = {
    {1, "linear", "xwv", fit_linear, BOTH(linear)},
    {2, "conv", "xwvnlll", fit_conv, BOTH(conv)},
    {3, "norm", "xvvwwr", fit_norm, BOTH(norm)},
    {4, "layer_norm", "xvvnr", fit_layer_norm, BOTH(layer_norm)},
    {5, "group_norm", "xvvnr", fit_group_norm, BOTH(group_norm)},
    {6, "embedding", "xw", fit_embedding, mean_embedding, 0},
    {7, "lstm", "xwwvvn", fit_recurrent, BOTH(lstm)},
    {8, "gru", "xwwvvn", fit_recurrent, BOTH(gru)},
    {9, "attention", "xxxynr", fit_attention, BOTH(attention)},
    {10, "matmul", "xx", fit_matmul, BOTH(matmul)},
    PAIR(11, add), PAIR(12, subtract), PAIR(13, multiply), PAIR(14, divide), PAIR(15, maximum), PAIR(16, minimum),
    {17, "affine", "xrr", fit_same, BOTH(unary)},
    {18, "concat", "Xn", fit_concat, mean_concat, 0},
    {19, "reshape", "xl", fit_reshape, mean_copy, 0},
    {20, "permute", "xl", fit_permute, mean_permute, 0},
    {21, "slice", "xnnnn", fit_slice, mean_slice, 0},
    {22, "pad", "xnnn", fit_pad, mean_pad, 0},
    {23, "expand", "xl", fit_expand, mean_expand, 0},
    {24, "max_pool", "xlllln", fit_max_pool, BOTH(max_pool)},
    {25, "avg_pool", "xlllnn", fit_avg_pool, BOTH(avg_pool)},
    {26, "adaptive_avg_pool", "xl", fit_adaptive, BOTH(adaptive)},
    {27, "mean", "xln", fit_reduce, BOTH(reduce)},
    {28, "sum", "xln", fit_reduce, BOTH(reduce)},
    {29, "amax", "xln", fit_reduce, BOTH(reduce)},
    {30, "softmax", "xn", fit_softmax, BOTH(softmax)},
    {31, "log_softmax", "xn", fit_softmax, BOTH(softmax)},
    {32, "constant", "lR", fit_constant, mean_constant, 0},
    {33, "dropout", "xrn", fit_dropout, BOTH(dropout)},
    {34, "upsample", "xl", fit_upsample, mean_upsample, 0},
    {35, "prelu", "xw", fit_prelu, BOTH(prelu)},
    UNARY(40, relu), UNARY(41, gelu), UNARY(42, gelu_tanh), UNARY(43, silu), UNARY(44, tanh), UNARY(45, sigmoid),
    UNARY(46, softplus), UNARY(47, exp), UNARY(48, log), UNARY(49, sqrt), UNARY(50, abs), UNARY(51, hardswish),
    UNARY(52, hardsigmoid),
    {53, "leaky_relu", "xr", fit_same, BOTH(unary)},
    {54, "elu", "xr", fit_same, BOTH(unary)},
    {55, "clamp", "xrr", fit_same, BOTH(unary)},
};
const int TABLE_ROWS = sizeof TABLE / sizeof *TABLE;
