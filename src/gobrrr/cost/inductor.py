"""Inductor's Triton kernels, which the trace records as ops with the shapes of the buffers they are handed.

Bytes: every buffer once (poi: pointwise, per: a row stays on the chip, red: the rows may be read twice). FLOP: from the
ops that the kernel's name lists, so `by_name`. Template kernels (tem) are matmuls.

The buffers come in the order of Inductor's signature (torch/_inductor/codegen/common.py, KernelArgs.python_argdefs):
updated in place, then inputs, then outputs, then sizes. How many there are of each kind is not in the trace. What the
sizes say of it: a pointwise kernel writes as many elements as it has, a reduction as many as it has or one a row, and
a last buffer that has neither is an input, so that the outputs are those updated in place, in front.
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
"""Words of kernels that may read a part of a buffer only."""
_MATRIX_WORDS = ("mm", "bmm", "addmm", "convolution")
"""Words of template kernels that are matrix products."""


def _buffers(call: OpCall) -> list[Tensor]:
    buffers = [argument for argument in call.inputs if isinstance(argument, Tensor)]
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
    largest = max(numel(buffer.shape) for buffer in buffers)
    space = numel(sizes)
    return space if sizes and 0 < space <= largest * 64 else largest


def _word_flop(name: str) -> int:
    words = name.partition("fused")[2].strip("_").split("_")
    return sum(_WORDS.get(word, 0) for word in words)


def _traffic(call: OpCall, buffers: list[Tensor], space: int) -> tuple[float, float, str]:
    """(bytes read, bytes written, how they are told apart)."""
    if _gated_backward(call.name, buffers, space):
        each = read_bytes(buffers[0])
        return 3 * each, 2 * each, "the gradients of a gate: three buffers read and two written, some of them in place"
    count, in_place = _outputs(call, buffers, space)
    read = sum(_read(call, buffer, space) for buffer in buffers[: len(buffers) - count])
    written = sum(write_bytes(buffer.shape, buffer.dtype) for buffer in buffers[len(buffers) - count :])
    if not in_place:
        return read, written, "every buffer once, the last one written: one updated in place is written too"
    first = buffers[0]
    # A result that a reduction finishes in place is not read from memory first.
    fresh = numel(first.shape) < space
    return (
        read - (_read(call, first, space) if fresh else 0.0),
        written + write_bytes(first.shape, first.dtype),
        "the first buffer is updated in place: the last one is smaller than a result",
    )


def _outputs(call: OpCall, buffers: list[Tensor], space: int) -> tuple[int, bool]:
    """(how many of the last buffers are written, whether the first is updated in place), as far as sizes tell."""
    sizes = [numel(buffer.shape) for buffer in buffers]
    last = sizes[-1]
    if len(buffers) < 2 or _reads_in_part(call):
        return 1, False
    if call.name.startswith("triton_poi_"):
        in_place = last < space <= sizes[0]
        return (0, True) if in_place else (1, False)
    place = max(place for place, argument in enumerate(call.inputs) if isinstance(argument, Tensor))
    rows = integer(call, place + 1)
    if not call.name.startswith(("triton_red_", "triton_per_")) or not rows or rows >= space:
        return 1, False
    if last >= space and max(sizes[:-1]) < space and sizes[0] == rows:
        return 0, True  # the only whole buffer is what is reduced
    if last == space // rows != rows and space <= sizes[0]:
        return 0, True  # weights of a row
    if max(rows, space // rows) < last < space == sizes[-2] and len(buffers) > 2:
        return 2, False  # a workspace of partial sums, beside the result
    return 1, False


def _read(call: OpCall, tensor: Tensor, space: int) -> float:
    size = numel(tensor.shape)
    return read_bytes(tensor) * (min(1.0, space / size) if size and _reads_in_part(call) else 1.0)


_MOVING_WORDS = frozenset(("view", "unsafe", "t", "transpose", "clone", "to", "copy", "slice", "split", "cat", ""))
"""Words that compute nothing."""


def _gated_backward(name: str, buffers: list[Tensor], space: int) -> bool:
    """The backward pass of f(x) * y, f computed again: "mul_silu_silu_backward" makes dx and dy from x, y and dz."""
    words = [word for word in name.partition("fused")[2].split("_") if not word.isdecimal()]
    others = [word for word in words if word not in _MOVING_WORDS and word not in ("mul", "backward")]
    gated = "mul" in words and words.count("backward") == 1 and len(others) == 2 and len(set(others)) == 1
    whole = all(numel(buffer.shape) == space for buffer in buffers)
    return gated and name.startswith("triton_poi_") and 3 <= len(buffers) <= 5 and whole


def _reads_in_part(call: OpCall) -> bool:
    """Whether the kernel may read less of a buffer than there is: then no more than one element for each of its own."""
    return any(word in call.name for word in _PARTIAL)


@rule("triton_poi_*", "triton_per_*", "triton_red_*", "triton_for_*", "triton_spl_*", "triton_mix_*", family="inductor")
def _fused(call: OpCall) -> Work:
    buffers = _buffers(call)
    space = _space(call, buffers)
    read, written, note = _traffic(call, buffers, space)
    twice = call.name.startswith("triton_red_")
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
