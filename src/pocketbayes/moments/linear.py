"""Rules of what is linear: layers, convolutions, products of matrices, sums over indices."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from pocketbayes.moments.arithmetic import sum_of
from pocketbayes.moments.value import Moments, Pair, no_rule, parts_of, rule

Operation = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def through_linear(
    operation: Operation, x: Pair, weight: Pair, bias: Pair, square: Tensor | None = None
) -> Pair:
    """Moments of A(w) x + b for independent x ~ (m, v), w ~ (mu, s^2) and b.

    mean = A(mu) m + E b, variance = A(s^2) (m^2 + v) + A(mu^2) v + Var b. `square`: mu^2, if known.
    """
    dtypes = (x[0].dtype, weight[0].dtype, torch.float32)
    dtype = reduce(torch.promote_types, dtypes)
    (m, v), (mu, s2), (b, b2) = (_in(dtype, *pair) for pair in (x, weight, bias))
    if v is not None:
        square = mu.square() if square is None else square.to(dtype)
    expected = operation(m, mu, b)
    if s2 is None:
        variance = None if v is None else operation(v, square, b2)  # type: ignore[arg-type]
    else:
        second = m.square() if v is None else torch.addcmul(v, m, m)
        variance = operation(second, s2, b2)
        if v is not None:
            variance += operation(v, square, None)  # type: ignore[arg-type]
    if variance is None and b2 is not None:
        variance = operation(torch.zeros_like(m), mu, b2)
    return expected, variance


def _in(dtype: torch.dtype, mean: Any, variance: Tensor | None) -> Pair:
    """The same in this type."""
    mean = mean if mean is None else mean.to(dtype)
    return mean, variance if variance is None else variance.to(dtype)


def linear_moments(
    operation: Operation,
    x: Any,
    weight: Pair,
    bias: Pair,
    axis: int,
    common: bool,
    square: Tensor | None = None,
) -> Moments:
    """The output of a layer whose features lie along `axis`, a negative number.

    `common`: one draw of the weights serves all positions.
    """
    expected, variance = through_linear(operation, parts_of(x), weight, bias, square)
    assert variance is not None
    before = x.positions if isinstance(x, Moments) else (False,) * expected.dim()
    features = expected.dim() + axis
    places = tuple((common or p) and d != features for d, p in enumerate(before))
    return Moments(expected, variance, places)


@rule("linear")
def _linear(func: Any, x: Any, weight: Any, bias: Any = None) -> Moments:
    common = isinstance(weight, Moments)
    return linear_moments(func, x, parts_of(weight), parts_of(bias), -1, common)


@rule("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
      "convolution")  # fmt: skip
def _convolution(
    func: Any, x: Any, weight: Any, bias: Any = None, *args: Any, **kwargs: Any
) -> Moments:
    def operation(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return func(x, weight, bias, *args, **kwargs)  # type: ignore[no-any-return]

    axis = 1 - weight.dim()
    common = isinstance(weight, Moments)
    return linear_moments(operation, x, parts_of(weight), parts_of(bias), axis, common)


@rule("matmul", "bmm", "mm", "mv")
def _matmul(func: Any, a: Any, b: Any) -> Moments:
    return product_of_matrices(func, a, b)


@rule("rmatmul")
def _rmatmul(_: Any, a: Any, b: Any) -> Moments:
    return product_of_matrices(torch.matmul, b, a)


@rule("addmm", "baddbmm")
def _addmm(_: Any, bias: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Moments:
    return sum_of(bias * beta, product_of_matrices(torch.matmul, a, b) * alpha)


def product_of_matrices(func: Callable[[Tensor, Tensor], Tensor], a: Any, b: Any) -> Moments:
    """A b: sums over the inner dimension; where noise is common along it, stds add with signs.

    variance = noise of a times means of b + means of a times noise of b + noise times noise.
    """
    if a is b:
        raise no_rule("a product of a random matrix and itself")
    (m, v), (n, w) = parts_of(a), parts_of(b)
    inner_a = isinstance(a, Moments) and a.positions[-1]
    inner_b = isinstance(b, Moments) and b.positions[-2 if b.dim() > 1 else -1]
    terms = list[Tensor]()
    if v is not None:
        terms.append(func(v.sqrt(), n).square() if inner_a else func(v, n.square()))
    if w is not None:
        terms.append(func(m, w.sqrt()).square() if inner_b else func(m.square(), w))
    if v is not None and w is not None:
        terms.append(func(v, w))
    expected = func(m, n)
    return Moments(expected, sum(terms[1:], terms[0]), _matrix_positions(a, b, expected.dim()))


def _matrix_positions(a: Any, b: Any, dimensions: int) -> tuple[bool, ...]:
    """Rows are as those of a, columns as those of b, or as what is summed over."""
    found = [False] * dimensions
    for value, own, inner in ((a, -2, -1), (b, -1, -2)):
        if not isinstance(value, Moments) or value.dim() < 2 or dimensions < 2:
            continue
        found[own] = found[own] or value.positions[own]
        found[inner] = found[inner] or value.positions[inner]
        for place in range(3, value.dim() + 1):
            found[-place] = found[-place] or value.positions[-place]
    return tuple(found)


@rule("einsum")
def _einsum(func: Any, equation: str, *operands: Any) -> Moments:
    """One random operand, or two that are independent; as products of matrices."""
    operands = tuple(operands[0]) if isinstance(operands[0], list | tuple) else operands
    equation = equation.replace(" ", "")
    random = [i for i, t in enumerate(operands) if isinstance(t, Moments)]
    if not 1 <= len(random) <= 2 or "." in equation or "->" not in equation:
        raise no_rule(f"einsum({equation!r}) of {len(random)} random tensors")
    means = [parts_of(t)[0] for t in operands]
    squares = [t.square() for t in means]
    inputs, output = equation.split("->")
    terms, places = list[Tensor](), [False] * len(output)
    for i in random:
        letters = inputs.split(",")[i]
        common = {c for c, p in zip(letters, operands[i].positions, strict=True) if p}
        places = [p or c in common for p, c in zip(places, output, strict=True)]
        if set(letters) - set(output) and set(letters) - set(output) <= common:
            noisy = [*means[:i], operands[i].variance.sqrt(), *means[i + 1 :]]
            terms.append(torch.einsum(equation, *noisy).square())
        else:
            noisy = [*squares[:i], operands[i].variance, *squares[i + 1 :]]
            terms.append(torch.einsum(equation, *noisy))
    if len(random) == 2:
        both = [operands[i].variance if i in random else s for i, s in enumerate(squares)]
        terms.append(torch.einsum(equation, *both))
    return Moments(torch.einsum(equation, *means), sum(terms[1:], terms[0]), tuple(places))
