"""The closed table of operations: their codes in a file, names and fields (docs/format.md).

A letter is a field: `n` an integer, `l` a list of them, `r` a real number, `R` a list of them, `x`
an operand, `X` a list of operands, `y` an operand or None, `w` a weight, `v` a weight or None.
"""

from typing import NamedTuple


class Operator(NamedTuple):
    """What a file calls an operation, and which fields follow."""

    code: int
    fields: str


_ROWS = """
1 linear xwv
2 conv xwvnlll
3 norm xvvwwr
4 layer_norm xvvnr
5 group_norm xvvnr
6 embedding xw
7 lstm xwwvvn
8 gru xwwvvn
9 attention xxxynr
10 matmul xx
11 add xx
12 subtract xx
13 multiply xx
14 divide xx
15 maximum xx
16 minimum xx
17 affine xrr
18 concat Xn
19 reshape xl
20 permute xl
21 slice xnnnn
22 pad xnnn
23 expand xl
24 max_pool xlllln
25 avg_pool xlllnn
26 adaptive_avg_pool xl
27 mean xln
28 sum xln
29 amax xln
30 softmax xn
31 log_softmax xn
32 constant lR
33 dropout xrn
34 upsample xl
35 prelu xw
40 relu x
41 gelu x
42 gelu_tanh x
43 silu x
44 tanh x
45 sigmoid x
46 softplus x
47 exp x
48 log x
49 sqrt x
50 abs x
51 hardswish x
52 hardsigmoid x
53 leaky_relu xr
54 elu xr
55 clamp xrr
"""

OPERATORS: dict[str, Operator] = {
    name: Operator(int(code), fields)
    for code, name, fields in (row.split() for row in _ROWS.split("\n") if row)
}
NAMES: dict[int, str] = {operator.code: name for name, operator in OPERATORS.items()}
