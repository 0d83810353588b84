"""The text of a C file and its header, put together from a pass, its tables and kernels."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from pocketbayes.deploy.c_functions import FUNCTIONS
from pocketbayes.deploy.c_tables import real

# Kernels in the order of the file, each with what it calls.
_KERNELS = {
    "weights": "", "cursor": "weights", "window": "", "function": "", "half_moments": "",
    "met": "window", "conv_add": "met", "conv_add_moments": "met",
    "normal": "", "copy": "", "move": "",
    "zero": "", "add": "", "norm": "", "apply": "function", "quadrature": "function",
    "leaky_moments": "half_moments", "clipped_moments": "", "max_pool": "window",
    "max_pool_moments": "window half_moments", "avg_pool": "window",
    "linear_dense": "weights", "linear_dense_moments": "weights",
    "linear_sparse": "cursor", "linear_sparse_moments": "cursor",
    "conv_dense": "weights conv_add", "conv_dense_moments": "weights conv_add_moments",
    "conv_sparse": "cursor conv_add", "conv_sparse_moments": "cursor conv_add_moments",
    "features": "", "last_dense": "weights", "last_sparse": "cursor", "spread": "linear_dense",
    "are_finite": "", "classes": "", "labels": "", "gaussian": "", "heteroscedastic": "",
}  # fmt: skip


@dataclass
class Facts:
    """What the header tells.

    Attributes:
        name: that all names in C begin with.
        fields: of the answer: type, name and size (0: a single number).
        told: lines of the header's comment.
        inputs: how many numbers go in.
        class_names: or none.
        preprocess: lists of numbers by their names.
    """

    name: str
    fields: list[tuple[str, str, int]]
    told: list[str]
    inputs: int
    class_names: tuple[str, ...]
    preprocess: dict[str, list[float]]


def kernels_text(names: Iterable[str], known: Iterable[str] = ()) -> str:
    """These kernels and all that they call, but for those that are known."""
    wanted, waiting = set(known), list(names)
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.add(name)
            waiting += _KERNELS[name].split()
    folder = files("pocketbayes.deploy") / "kernels"
    return "\n".join((folder / f"{n}.c").read_text() for n in _KERNELS if n in wanted - set(known))


def functions_text(names: Iterable[str]) -> str:
    """Functions of one number."""
    made = [
        f"static float f_{name}(float t, float a, float b)\n"
        f"{{\n    (void)a, (void)b;\n    return {FUNCTIONS[name]};\n}}\n"
        for name in sorted(names)
    ]
    return "\n".join(made)


def nodes_of(number: int) -> np.ndarray[Any, Any]:
    """Points of Gauss and Hermite, and behind them their weights, without those of no weight."""
    points, weights = np.polynomial.hermite_e.hermegauss(number)
    kept = weights / weights.sum() > 1e-12
    return np.concatenate([points[kept], (weights / weights.sum())[kept]])


def header_text(facts: Facts) -> str:
    """The .h file."""
    name, guard = facts.name, f"{facts.name.upper()}_H"
    fields = [f"    {kind} {key}{f'[{n}]' if n else ''};" for kind, key, n in facts.fields]
    about = "\n".join(f"   {comment(line)}".rstrip() for line in facts.told)
    lines = [
        f"/* {name}.h\n{about} */", f"#ifndef {guard}", f"#define {guard}", "",
        f"#define {name.upper()}_INPUTS {facts.inputs}",
    ]  # fmt: skip
    for key, values in facts.preprocess.items():
        numbers = ", ".join(map(real, values))
        lines.append(f"#define {name.upper()}_INPUT_{key.upper()} {{{numbers}}}")
    if facts.class_names:
        lines += [
            f"#define {name.upper()}_CLASSES {len(facts.class_names)}", "",
            *(f"/* {i}: {comment(n)} */" for i, n in enumerate(facts.class_names)),
            f"extern const char *const {name}_class_names[{name.upper()}_CLASSES];",
        ]  # fmt: skip
    lines += [
        "", f"typedef struct {name}_answer {{", *fields, f"}} {name}_answer;", "",
        "/* 0; or 1 if an input is NaN or infinite, and the answer is left as it was; or 2 if what",
        "   is answered is not finite, as of inputs too large for float32: it says nothing then.",
        "   Its buffers are static: no two calls at a time. */",
        f"int {name}_predict(const float *input, {name}_answer *answer);",
        "#endif", "",
    ]  # fmt: skip
    return "\n".join(lines)


def source_text(facts: Facts, constants: Mapping[str, Any], parts: Iterable[str], body: str) -> str:
    """The .c file."""
    name = facts.name
    named = ", ".join(f"{key} = {value}" for key, value in constants.items())
    lines = [
        f"/* {name}.c: see {name}.h */", f'#include "{name}.h"', "#include <math.h>",
        "#include <stdint.h>", "", f"typedef {name}_answer answers;", f"enum {{{named}}};", "",
        *parts,
    ]  # fmt: skip
    if facts.class_names:
        names = ",\n".join(f"    {c_string(n)}" for n in facts.class_names)
        lines += [f"const char *const {name}_class_names[] = {{\n{names}\n}};", ""]
    lines += [
        f"int {name}_predict(const float *input, {name}_answer *answer)", "{",
        f"    for (int i = 0; i < {name.upper()}_INPUTS; i++)", "        if (!isfinite(input[i]))",
        "            return 1;", body, f"    return {_are_finite(facts.fields)} ? 0 : 2;", "}", "",
    ]  # fmt: skip
    return "\n".join(lines)


def _are_finite(fields: Iterable[tuple[str, str, int]]) -> str:
    """Whether an answer is, as C."""
    calls = [
        f"are_finite({'' if n else '&'}answer->{key}, {n or 1})"
        for kind, key, n in fields
        if kind == "float"
    ]
    return f"({' && '.join(calls)})"


def comment(text: str) -> str:
    """Text that cannot end a comment, whatever it is."""
    plain = json.dumps(text)[1:-1].replace('\\"', '"').replace("\\\\", "/")
    return plain.replace("*/", "* /").replace("/*", "/ *")


def c_string(text: str) -> str:
    """A string constant, what is not plain ASCII as octal bytes."""
    plain = (
        chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode()
    )
    return f'"{"".join(plain)}"'
