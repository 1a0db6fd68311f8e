"""The property of an operation's arguments that decides which kernel runs, as a word: layout, alignment, mode.

Calls of one operation reach very different shares of the ceilings: a matrix product whose rows are not 16-byte aligned,
a copy that turns a matrix, a batch norm in inference. The stored shares are kept by this word.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from gobrrr.model.work import DTYPE_BYTES, OpCall, Scalar, Tensor

ALIGN_BYTES = 16
"""cuBLAS and cuDNN load 16 bytes at a time where addresses and row pitches allow it (NVIDIA, "Matrix Multiplication
Background User's Guide", tensor core requirements)."""
NARROW_NORM_ROW, WIDE_SOFTMAX_ROW = 384, 4096
"""Elements of a row below which a norm, and above which a softmax, runs another kernel."""


def variant(op: str, family: str, call: OpCall) -> str:
    """The word for a call; "" for the usual. `op` is its canonical name."""
    rule = _BY_OP.get(op) or _BY_FAMILY.get(family)
    try:
        return rule(call) if rule is not None else ""
    except (IndexError, StopIteration, ValueError, ZeroDivisionError):
        return ""


def repeats(op: str, call: OpCall) -> int:
    """Steps that a call runs one after the other, each as long as its kernel takes at least: a recurrence's."""
    if op not in ("_cudnn_rnn", "_cudnn_rnn_backward"):
        return 1
    data = next((tensor for tensor in call.tensors if len(tensor.shape) == 3), None)
    layers = {"aten::_cudnn_rnn": 9, "aten::_cudnn_rnn_backward": 13}.get(call.name)
    text = _text(call, layers) if layers is not None else ""
    steps = 1 if layers is not None and _text(call, layers + 1) == "True" else 0  # batch_first
    return max(data.shape[steps] if data else 1, 1) * (int(text) if text.isdigit() else 1)


def _text(call: OpCall, place: int) -> str:
    value = call.inputs[place] if place < len(call.inputs) else None
    return value.text if isinstance(value, Scalar) else ""


def copied(call: OpCall) -> str:
    """The element types of a copy, from and to: "float32>bfloat16"; "" where they are not both known."""
    given = call.tensors
    if call.name.endswith("copy_") and len(given) >= 2:
        return f"{given[1].dtype}>{given[0].dtype}"
    target = call.outputs[0] if call.outputs else given[0] if given else None
    return f"{given[0].dtype}>{target.dtype}" if given and target is not None else ""


def hidden_copy(op: str, call: OpCall) -> Tensor | None:
    """The operand that a kernel copies first because it takes rows only: none where it lies in rows already."""
    if op not in _ROWS_ONLY:
        return None
    data = [tensor for tensor in call.tensors if len(tensor.shape) >= 3]
    return next((tensor for tensor in data if _inner(tensor) not in (None, -1)), None)


_ROWS_ONLY = frozenset(
    ("native_layer_norm", "native_layer_norm_backward", "_fused_rms_norm", "_fused_rms_norm_backward")
)
"""Operations whose kernels take rows only."""


def _product(call: OpCall) -> str:
    matrices = [tensor for tensor in call.tensors if len(tensor.shape) >= 2]
    pitches = [_pitch(matrix) for matrix in matrices]
    if len(matrices) >= 2:
        pitches.append(matrices[-1].shape[-1] * DTYPE_BYTES.get(matrices[-1].dtype, 4))
    return "odd" if any(int(pitch) % ALIGN_BYTES for pitch in pitches) else ""


def _pitch(tensor: Tensor) -> float:
    """Bytes from row to row of the last two dimensions, whichever of them is contiguous."""
    steps = tensor.strides or ()
    rows = max(steps[-2:]) if len(steps) >= 2 else tensor.shape[-1]
    return rows * DTYPE_BYTES.get(tensor.dtype, 4)


def _convolution(call: OpCall) -> str:
    data, weight = [tensor for tensor in call.tensors if len(tensor.shape) >= 3][-2:]
    groups = _groups(call, data, weight)
    wide = max(weight.shape[2:])
    kind = f"depthwise{wide}" if groups > 1 and groups == data.shape[1] else "grouped" if groups > 1 else ""
    if not kind:
        kind = "stem" if data.shape[1] < 8 else "k1" if math.prod(weight.shape[2:]) == 1 else "kn"
    return f"{kind}.{_layout(data)}"


def _groups(call: OpCall, data: Tensor, weight: Tensor) -> int:
    """A transposed convolution's weight is [in, out / groups, ...]: only its arguments tell the groups."""
    name = call.name.partition("::")[2]
    if "conv_transpose" in name or "convolution_transpose" in name:
        return _digits(call, _TRANSPOSED_GROUPS)
    flag = 7 if name.endswith("_backward") else 6
    if name.startswith("convolution") and _text(call, flag) == "True":
        return _digits(call, flag + 2)
    return data.shape[1] // max(weight.shape[1], 1)


_TRANSPOSED_GROUPS = 6
"""Place of `groups` among the arguments of cudnn_convolution_transpose."""


def _digits(call: OpCall, place: int) -> int:
    text = _text(call, place)
    return int(text) if text.isdigit() else 1


def _layout(tensor: Tensor) -> str:
    steps = tensor.strides
    return "nhwc" if steps is not None and len(steps) == 4 and steps[1] == 1 and tensor.shape[1] > 1 else "nchw"


def _attention(call: OpCall) -> str:
    """The head size, and whether a single query attends (decoding)."""
    query = next(tensor for tensor in call.tensors if len(tensor.shape) == 4)
    rows = min(query.shape[1], query.shape[2]) if call.name.endswith("_attention_forward") else query.shape[2]
    size = "d64" if query.shape[-1] <= 64 else "d128" if query.shape[-1] <= 128 else "d256"
    return f"{size}.one" if rows == 1 else size


def _batch_norm(call: OpCall) -> str:
    flags = [
        argument.text for argument in call.inputs if isinstance(argument, Scalar) and argument.text in ("True", "False")
    ]
    layout = next((_layout(tensor) for tensor in call.tensors if len(tensor.shape) == 4), "")
    inference = flags[:1] == ["False"] or call.name.endswith(_INFERENCE)
    return f"{'eval' if inference else 'train'}.{layout}"


_INFERENCE = ("_no_training", "_no_update")
"""Ends of the names of batch norms that take no flag and update nothing."""


def _norm(call: OpCall) -> str:
    data = next(tensor for tensor in call.tensors if len(tensor.shape) >= 2)
    return "narrow" if data.shape[-1] <= NARROW_NORM_ROW else ""


def _softmax(call: OpCall) -> str:
    data = next(tensor for tensor in call.tensors if len(tensor.shape) >= 1)
    return "wide" if data.shape[-1] > WIDE_SOFTMAX_ROW else ""


def _pointwise(call: OpCall) -> str:
    """Whether its large operands lie in memory in different orders, or with gaps."""
    given = [tensor for tensor in (*call.tensors, *(call.outputs or ())) if len(tensor.shape) >= 2]
    most = max((math.prod(tensor.shape) for tensor in given), default=0)
    large = [tensor for tensor in given if math.prod(tensor.shape) == most and any(tensor.strides or ())]
    inner = {_inner(tensor) for tensor in large} - {None}
    if len(inner) > 1:
        return "turned"
    if any(_gaps(tensor) for tensor in large):
        return "strided"
    return "broadcast" if any(0 in (tensor.strides or ()) for tensor in large) else ""


def _inner(tensor: Tensor) -> int | None:
    """The dimension along which neighbours lie next to each other in memory; None where there is none."""
    places = [
        at
        for at, (size, step) in enumerate(zip(tensor.shape, tensor.strides or (), strict=False))
        if size > 1 and step == 1
    ]
    return places[-1] - len(tensor.shape) if places else None


def _gaps(tensor: Tensor) -> bool:
    extent = 1 + sum(
        (size - 1) * step for size, step in zip(tensor.shape, tensor.strides or (), strict=False) if size > 0
    )
    return extent > math.prod(tensor.shape) and 0 not in (tensor.strides or ())


def _reduction(call: OpCall) -> str:
    """Which dimensions go: "all", the last ("inner"), or others ("outer")."""
    data = next(tensor for tensor in call.tensors if tensor.shape)
    texts = [argument.text for argument in call.inputs if isinstance(argument, Scalar)]
    name = call.name.partition("::")[2].partition(".")[0]
    text = next((text for text in texts[name in _NUMBER_FIRST :] if text[:1] in "[-0123456789"), "")
    places = [int(part) % len(data.shape) for part in text.strip("[]").split(",") if part.strip().lstrip("-").isdigit()]
    if not places or len(places) == len(data.shape):
        return "all"
    return "inner" if len(data.shape) - 1 in places else "outer"


_NUMBER_FIRST = frozenset(("norm", "linalg_vector_norm", "linalg__powsum", "topk", "kthvalue", "renorm"))
"""Reductions with another number before the dimensions."""


Rule = Callable[[OpCall], str]
# The variant of an operation, and of any other operation by its family.
_BY_OP: dict[str, Rule] = {
    "native_batch_norm": _batch_norm,
    "native_batch_norm_backward": _batch_norm,
    "native_layer_norm": _norm,
    "native_layer_norm_backward": _norm,
    "_fused_rms_norm": _norm,
    "_fused_rms_norm_backward": _norm,
    "copy": _pointwise,
    "fused_attention": _attention,
    "fused_attention_backward": _attention,
    "efficient_attention": _attention,
    "efficient_attention_backward": _attention,
}
_BY_FAMILY: dict[str, Rule] = {
    "matmul": _product,
    "convolution": _convolution,
    "pointwise": _pointwise,
    "reduction": _reduction,
    "softmax": _softmax,
}
