"""Rules of arithmetic: of two random tensors that are independent, or one and a plain one."""

from typing import Any

import torch
from torch import Tensor

from pocketbayes.moments.gaussians import larger_of, quadrature
from pocketbayes.moments.value import Moments, combined, no_rule, parts_of, rule


def sum_of(a: Any, b: Any, factor: Any = 1) -> Moments:
    """A + c b: variances add, Var a + c^2 Var b; of one and the same tensor, (1 + c) a."""
    (m, v), (n, w) = parts_of(a), parts_of(b)
    expected = torch.add(m, n, alpha=factor) if isinstance(m, Tensor) else m + factor * n
    if a is b:
        return combined(expected, v * (1 + factor) ** 2, a)
    if w is not None and factor not in (1, -1):
        w = w * factor**2
    variance = w if v is None else v if w is None else v + w
    assert variance is not None
    return combined(expected, variance, a, b)


def product_of(a: Any, b: Any) -> Moments:
    """A b: mean m n, variance v w + m^2 w + n^2 v; of one and the same tensor, its square."""
    if a is b:
        return square_of(a)
    (m, v), (n, w) = parts_of(a), parts_of(b)
    if v is None or w is None:
        scale, variance = (m, w) if v is None else (n, v)
        return combined(m * n, variance * scale**2, a, b)
    return combined(m * n, torch.addcmul((m.square() + v) * w, n.square(), v), a, b)


def square_of(x: Moments) -> Moments:
    """X^2: mean m^2 + v, variance 2 v^2 + 4 m^2 v."""
    m, v = x.expected, x.variance
    return x.like(m.square() + v, 2 * v * (v + 2 * m.square()))


def first_order(x: Moments, value: Tensor, slope: Tensor) -> Moments:
    """F(x): mean f(m), variance f'(m)^2 v."""
    return x.like(value, slope.square() * x.variance)


@rule("add", "radd")
def _add(_: Any, a: Any, b: Any, *, alpha: Any = 1) -> Moments:
    return sum_of(a, b, alpha)


@rule("sub", "subtract")
def _sub(_: Any, a: Any, b: Any, *, alpha: Any = 1) -> Moments:
    return sum_of(a, b, -alpha)


@rule("rsub")
def _rsub(_: Any, a: Any, b: Any, *, alpha: Any = 1) -> Moments:
    return sum_of(b, a, -alpha)


@rule("mul", "multiply", "rmul")
def _mul(_: Any, a: Any, b: Any) -> Moments:
    return product_of(a, b)


@rule("div", "divide", "true_divide", "truediv")
def _div(_: Any, a: Any, b: Any, *, rounding_mode: str | None = None) -> Moments:
    if rounding_mode is not None:
        raise no_rule(f"div(rounding_mode={rounding_mode!r})")
    return product_of(a, inverse_of(b) if isinstance(b, Moments) else 1 / b)


@rule("rdiv", "rtruediv")
def _rdiv(_: Any, a: Moments, b: Any) -> Moments:
    return product_of(b, inverse_of(a))


def inverse_of(x: Moments) -> Moments:
    """1 / x to first order, since its variance is infinite: 1 / m, v / m^4."""
    inverse = x.expected.reciprocal()
    return first_order(x, inverse, inverse.square())


@rule("reciprocal")
def _reciprocal(_: Any, x: Moments) -> Moments:
    return inverse_of(x)


@rule("sqrt")
def _sqrt(_: Any, x: Moments) -> Moments:
    root = x.expected.sqrt()
    return first_order(x, root, 0.5 / root)


@rule("rsqrt")
def _rsqrt(_: Any, x: Moments) -> Moments:
    inverse = x.expected.rsqrt()
    return first_order(x, inverse, 0.5 * inverse / x.expected)


@rule("log")
def _log(_: Any, x: Moments) -> Moments:
    return first_order(x, x.expected.log(), x.expected.reciprocal())


@rule("neg", "negative")
def _neg(_: Any, x: Moments) -> Moments:
    return x.like(-x.expected, x.variance)


@rule("pos", "positive", "clone", "detach", "data", "alias", "requires_grad", "identity")
def _same(_: Any, x: Moments, *__: Any, **___: Any) -> Moments:
    return x.like(x.expected, x.variance)


@rule("square")
def _square(_: Any, x: Moments) -> Moments:
    return square_of(x)


@rule("pow")
def _pow(_: Any, x: Any, exponent: Any) -> Moments:
    """Whole powers by quadrature, others to first order."""
    if isinstance(exponent, Moments):
        return rpow_of(exponent, x)
    if exponent == 2:
        return square_of(x)
    if isinstance(exponent, int) and exponent >= 0:
        return quadrature(lambda t: t**exponent, x)
    m = x.expected
    return first_order(x, m**exponent, exponent * m ** (exponent - 1))


@rule("rpow")
def _rpow(_: Any, x: Moments, base: Any) -> Moments:
    return rpow_of(x, base)


def rpow_of(x: Moments, base: Any) -> Moments:
    """Base^x."""
    if isinstance(base, Moments):
        raise no_rule("pow of two random tensors")
    return quadrature(lambda t: base**t, x)


@rule("lerp")
def _lerp(_: Any, a: Any, b: Any, share: Any) -> Moments:
    """(1 - t) a + t b: variance (1 - t)^2 v + t^2 w + Var t ((m - n)^2 + v + w)."""
    means, variances = zip(*map(parts_of, (a, b, share)), strict=True)
    (m, n, t), (v, w, u) = means, (0.0 if v is None else v for v in variances)
    variance = (1 - t) ** 2 * v + t**2 * w + u * ((m - n).square() + v + w)
    return combined(m + t * (n - m), variance, a, b, share)


@rule("maximum", "fmax")
def _maximum(_: Any, a: Any, b: Any) -> Moments:
    return larger_of(a, b)


@rule("minimum", "fmin")
def _minimum(_: Any, a: Any, b: Any) -> Moments:
    least = larger_of(-a, -b)
    return least.like(-least.expected, least.variance)
