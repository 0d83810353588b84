"""Functions of one number in C, of t with constants a and b."""

FUNCTIONS = {
    "relu": "t < 0 ? 0 : t",
    "leaky_relu": "t > 0 ? t : a * t",
    "abs": "fabsf(t)",
    "clamp": "t < a ? a : t > b ? b : t",
    "hardsigmoid": "(t < -3 ? 0 : t > 3 ? 6 : t + 3) / 6",
    "hardswish": "t * (t < -3 ? 0 : t > 3 ? 6 : t + 3) / 6",
    "affine": "a * t + b",
    "square": "a * a * t",
    "tanh": "tanhf(t)",
    "sigmoid": "1 / (1 + expf(-t))",
    "silu": "t / (1 + expf(-t))",
    "gelu": "0.5f * t * erfcf(-0.70710678f * t)",
    "gelu_tanh": "0.5f * t * (1 + tanhf(0.79788456f * (t + 0.044715f * t * t * t)))",
    "softplus": "(t > 0 ? t : 0) + log1pf(expf(-fabsf(t)))",
    "elu": "t > 0 ? t : a * expm1f(t)",
}
