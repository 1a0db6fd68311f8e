"""Inductor's Triton kernels, which the trace records as ops with the shapes of the buffers they are handed.

Bytes: every buffer once (poi: pointwise, per: a row stays on the chip, red: the rows may be read twice). FLOP: from the
ops that the kernel's name lists, so `by_name`. Template kernels (tem) are matmuls.
"""

from __future__ import annotations

from gobrrr.cost.arguments import integer
from gobrrr.cost.build import contraction, vector
from gobrrr.cost.registry import Uncounted, rule
from gobrrr.cost.shapes import FMA_FLOP, numel, read_bytes, write_bytes
from gobrrr.model.work import OpCall, Scalar, Tensor, Work

# FLOP an element of the words in a kernel's name; a word that isn't here moves data.
_WORDS: dict[str, int] = {
    "add": 1, "sub": 1, "mul": 1, "div": 1, "neg": 1, "pow": 1, "exp": 1, "log": 1, "sqrt": 1, "rsqrt": 1, "cos": 1,
    "sin": 1, "tanh": 1, "sigmoid": 1, "relu": 1, "clamp": 2, "gelu": 5, "silu": 2, "erf": 1, "abs": 1, "sum": 1,
    "mean": 1, "amax": 1, "max": 1, "min": 1, "maximum": 1, "minimum": 1, "softmax": 5, "layer": 8, "norm": 0,
    "native": 0, "reciprocal": 1, "addcmul": 3, "lerp": 3, "where": 1, "dropout": 3, "var": 5, "online": 0,
    "addmm": 1, "convolution": 1, "rms": 4,
}  # fmt: skip
_PARTIAL = ("embedding", "gather", "index", "scatter", "nll_loss", "select", "slice", "split", "narrow")
_MATRIX_WORDS = ("mm", "bmm", "addmm", "convolution")


def _buffers(call: OpCall) -> list[Tensor]:
    buffers = [one for one in call.inputs if isinstance(one, Tensor)]
    if not buffers:
        raise Uncounted("the Triton kernel's buffers are not recorded")
    return buffers


def _space(call: OpCall, buffers: list[Tensor]) -> int:
    """Elements of the iteration space: the trailing scalars multiplied, if they are; else the largest buffer."""
    sizes: list[int] = []
    for place in range(len(call.inputs) - 1, -1, -1):
        if not isinstance(call.inputs[place], Scalar):
            break
        size = integer(call, place)
        sizes.append(size if size is not None and size > 0 else 1)
    largest = max(numel(one.shape) for one in buffers)
    space = numel(sizes)
    return space if sizes and 0 < space <= largest * 64 else largest


def _word_flop(name: str) -> int:
    words = name.partition("fused")[2].strip("_").split("_")
    return sum(_WORDS.get(word, 0) for word in words)


def _traffic(call: OpCall, buffers: list[Tensor], space: int) -> tuple[float, float]:
    """All but the last buffer read, the last written: the trace doesn't say which is which; their sum counts."""
    read = 0.0
    for one in buffers[:-1]:
        whole = read_bytes(one)
        share = min(1.0, space / numel(one.shape)) if numel(one.shape) and _reads_in_part(call) else 1.0
        read += whole * share
    return read, write_bytes(buffers[-1].shape, buffers[-1].dtype)


def _reads_in_part(call: OpCall) -> bool:
    """Whether the kernel may read less of a buffer than there is: then no more than one element for each of its own."""
    return any(word in call.name for word in _PARTIAL)


@rule("triton_poi_*", "triton_per_*", "triton_red_*", "triton_for_*", "triton_spl_*", "triton_mix_*", family="inductor")
def _fused(call: OpCall) -> Work:
    buffers = _buffers(call)
    space = _space(call, buffers)
    read, written = _traffic(call, buffers, space)
    twice = call.name.startswith("triton_red_")
    note = "every buffer once: a buffer updated in place is written too"
    return Work(
        count="bounded",
        vector_flop=float(_word_flop(call.name) * space),
        vector_dtype=vector(flop=0.0, dtype=buffers[0].dtype, read=0.0, written=0.0).vector_dtype,
        bytes_read=read,
        bytes_written=written,
        fusible=True,
        by_name=True,
        note=f"{note}; a reduction may read its rows twice" if twice else note,
    )


@rule("triton_tem_*", "triton_mm*", "triton_bmm*", family="inductor")
def _template(call: OpCall) -> Work:
    buffers = _buffers(call)
    if not any(word in call.name.split("_") for word in _MATRIX_WORDS) or len(buffers) < 3:
        raise Uncounted("a template kernel that isn't a matrix product of recorded buffers")
    left, right, out = buffers[0], buffers[1], buffers[-1]
    inner = _inner(left, right, out)
    return contraction(
        call,
        flop=FMA_FLOP * numel(out.shape) * inner,
        dtype=left.dtype,
        read=read_bytes(*buffers[:-1]),
        written=write_bytes(out.shape, out.dtype),
        count="bounded",
        note="operands taken from the order of the kernel's buffers",
    )


def _inner(left: Tensor, right: Tensor, out: Tensor) -> int:
    """K from element counts alone, views being lost: |A| |B| / |C| = K^2 (a batch divided out once more)."""
    batch = out.shape[0] if len(out.shape) == 3 else 1
    squared = numel(left.shape) * numel(right.shape)
    base = numel(out.shape) * max(1, batch)
    inner = round((squared / base) ** 0.5) if base else 0
    if inner <= 0 or inner * inner * base != squared:
        raise Uncounted("a template kernel whose buffers don't fit a matrix product")
    return inner
