"""Counting: an op and its arguments in, the FLOP and bytes that it must do out.

`price` is the door. A rule for an op of your own is three lines: docs/rules.md. What such a rule is made of is here:

    registering      rule, register, unregister, names, Uncounted
    a call           OpCall and its arguments Tensor, TensorList, Scalar; read with tensor, maybe_tensor, tensor_list,
                     integer, integers, number, flag
    a Work           elementwise, vector, contraction, copy, from numel, read_bytes, write_bytes; contraction_flop(work)
"""

from __future__ import annotations

from gobrrr.cost.arguments import flag, integer, integers, maybe_tensor, number, tensor, tensor_list
from gobrrr.cost.build import contraction, contraction_flop, copy, elementwise, vector
from gobrrr.cost.parse import dtype_name, parse_inputs
from gobrrr.cost.pricing import price
from gobrrr.cost.registry import Uncounted, names, register, rule, unregister
from gobrrr.cost.shapes import numel, read_bytes, write_bytes
from gobrrr.model.work import OpCall, Scalar, Tensor, TensorList, Work

__all__ = [
    "OpCall",
    "Scalar",
    "Tensor",
    "TensorList",
    "Uncounted",
    "Work",
    "contraction",
    "contraction_flop",
    "copy",
    "dtype_name",
    "elementwise",
    "flag",
    "integer",
    "integers",
    "maybe_tensor",
    "names",
    "number",
    "numel",
    "parse_inputs",
    "price",
    "read_bytes",
    "register",
    "rule",
    "tensor",
    "tensor_list",
    "unregister",
    "vector",
    "write_bytes",
]
