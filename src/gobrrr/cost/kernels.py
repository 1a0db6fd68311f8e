"""What a kernel's name tells when the arguments don't: the element type, the unit, the direction of a copy.

The last resort: every figure that rests on it is marked `by_name`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gobrrr.cost.dtypes import category
from gobrrr.cost.shapes import OPAQUE

# Mangled spellings too: PyTorch's own kernels come demangled, CUTLASS' often don't.
_TYPES: tuple[tuple[str, str], ...] = (
    (r"c10::BFloat16|__nv_bfloat16|__hip_bfloat16|bfloat16_t|(?<![a-z])bf16|N3c108BFloat16E", "bfloat16"),
    (r"c10::Half|at::Half|__half|half_t|(?<![a-z])fp16|_f16|h?gemm_fp16|hgemm|h884|h16816", "float16"),
    (r"c10::Float8_e4m3fn\b|e4m3", "float8_e4m3fn"),
    (r"\bdouble\b|dgemm|d884gemm|_f64", "float64"),
    (r"\bfloat\b|sgemm|scudnn|s1688gemm|_f32|tf32|fp32", "float32"),
    (r"\bbool\b", "bool"),
    (r"\blong\b|int64", "int64"),
    (r"\bint\b", "int32"),
)
_PATTERNS = tuple((re.compile(pattern), dtype) for pattern, dtype in _TYPES)
_SIZE = re.compile(r"OpaqueType<(\d+)")
"""Bytes of an element, where PyTorch's copying kernels say no more of its type."""

_TF32 = re.compile(r"tf32|s1688gemm|s1688fprop|s1688dgrad|s1688wgrad|s1688cudnn", re.IGNORECASE)
_VECTOR32 = re.compile(
    r"simt|sgemm|scudnn|f32f32_f32f32|gemv|ffma|gemmsn|dot_kernel|reduce_1Block|splitKreduce_kernel<32|"
    r"implicit_convolve_sgemm|winograd|dgrad_engine|wgrad_alg0|precomputed_convolve|fft2d|conv_depthwise|S_B_MX",
    re.IGNORECASE,
)
_ROCM_VECTOR32 = re.compile(r"Cijk_\w*_(S|SB)_")
"""Names of float32 contractions: with TF32, on the vector units, and on those of AMD."""
_UNITS = {
    "bfloat16": "bfloat16", "float16": "float16", "float64": "float64", "int8": "int8", "uint8": "int8",
    "float4_e2m1fn_x2": "float4",
}  # fmt: skip
"""The matrix unit of an element type, where the type alone decides."""

CPU_KERNEL_PREFIX = "CPU "
"""How the live door names what an operation computes on the host's own processor."""


class Unit(NamedTuple):
    """Where a contraction runs: `dtype` names the matrix unit ("tf32", "bfloat16"; "float32" is the vector unit)."""

    dtype: str
    by_name: bool = False
    note: str = ""


def matrix_unit(dtype: str, kernels: tuple[str, ...]) -> Unit:
    """The unit of a contraction of `dtype`; for float32 the kernels' names say whether TF32 was on."""
    if dtype.startswith("float8"):
        return Unit("float8")
    if dtype in _UNITS:
        return Unit(_UNITS[dtype])
    if dtype not in ("float32", "complex64"):
        return Unit(dtype or "float32", note="" if dtype else "element type not known")
    return _float32_unit(kernels)


def _float32_unit(kernels: tuple[str, ...]) -> Unit:
    if any(_TF32.search(name) for name in kernels):
        return Unit("tf32", by_name=True)
    if kernels and all(name.startswith(CPU_KERNEL_PREFIX) for name in kernels):
        return Unit("float32")
    if any(_VECTOR32.search(name) or _ROCM_VECTOR32.search(name) for name in kernels):
        return Unit("float32", by_name=True)
    return Unit("float32", note="TF32 not known: the kernel's name doesn't tell")


def element_type(kernels: tuple[str, ...]) -> str:
    """The element type that the kernels' names tell, floating before integer; "" when they don't."""
    found = [dtype for dtype in map(_type_in, kernels) if dtype]
    return max(found, key=category, default="")


def _type_in(name: str) -> str:
    size = _SIZE.search(name)
    if size:
        return f"{OPAQUE}{size.group(1)}"
    hits = [(match.start(), dtype) for pattern, dtype in _PATTERNS if (match := pattern.search(name))]
    hits = [hit for hit in hits if category(hit[1]) == 2] or hits
    return min(hits)[1] if hits else ""


def copy_direction(name: str) -> str:
    """ "HtoD", "DtoH", "DtoD", "HtoH", "PtoP" or "set" for a memcpy or memset event's name; "" for a kernel's."""
    lower = name.lower()
    if lower.startswith(("memset", "hipmemset", "fillbuffer")):
        return "set"
    if not lower.startswith(("memcpy", "copy")):
        return ""
    for spelling, direction in _DIRECTIONS:
        if spelling in lower:
            return direction
    return ""


_DIRECTIONS = (
    ("htod", "HtoD"), ("hosttodevice", "HtoD"), ("dtoh", "DtoH"), ("devicetohost", "DtoH"),
    ("dtod", "DtoD"), ("devicetodevice", "DtoD"), ("ptop", "PtoP"), ("peer", "PtoP"), ("htoh", "HtoH"),
)  # fmt: skip
"""How drivers spell the direction of a copy."""
