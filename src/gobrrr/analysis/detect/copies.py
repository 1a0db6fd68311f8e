"""Copies on the device, by what they change: the element type, or the order of the dimensions in memory."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.events.calls import NAME_CHARACTERS
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.fusion import tensors
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.model.events import I8
from gobrrr.model.work import DTYPE_BYTES, Tensor

IMAGE_CHANNELS = 4
"""A convolution over at most this many channels is the network's first: its images come from the loader as NCHW."""

COPY_OPS = ("copy_", "_to_copy", "clone", "contiguous")
"""Operations that copy a tensor."""

TURNING_NS = 4.2
"""The most that a processor's convolution loses by images as NCHW, in ns per element that it reads and writes. Of 29
that were measured both ways round (forward and backward, dense, grouped and depthwise, float32, torch 2.13, one thread
of an AMD EPYC) the most was 4.1 ns; nearly half took 0.5 ns or less, eight of them nothing at all."""

IMAGE_ORDERS = {(0, 1, 2, 3), (0, 2, 3, 1)}
"""Dimensions of [N, C, H, W] from the outermost in memory to the innermost: channels outside, channels inside."""

FLOATING = ("float64", "float32", "bfloat16", "float16")
QUANTISED = ("int8", "uint8", "float8")
"""Floating types, and the beginnings of the names of types of one byte."""

CONVERTER = re.compile(r"nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|tensorTransform|batched_transpose", re.IGNORECASE)
"""Kernels in which a convolution library converts its operands to the memory order that its own kernel needs."""


def casts(evidence: Evidence) -> I8:
    """Calls that only convert a tensor from one floating type to another."""
    return evidence.calls_that(_casts)


def dequantisations(evidence: Evidence) -> I8:
    """Calls that only convert a tensor from a type of one byte to a floating type."""
    return evidence.calls_that(_dequantises)


def reorders(evidence: Evidence) -> I8:
    """Calls that only write the same elements in another order of the dimensions, in the same type."""
    return evidence.calls_that(_reorders)


def weight_casts(evidence: Evidence, calls: I8) -> NDArray[np.bool_]:
    """One flag for each of some casts: whether it converts the weight of the linear or convolution around it."""
    known: dict[tuple[int, int], bool] = {}
    return np.array([_of_weight(evidence, call, known) for call in calls.tolist()], dtype=bool)


def converters(evidence: Evidence) -> tuple[I8, NDArray[np.float64]]:
    """(calls that contain layout converters, the nanoseconds of the converters in each)."""
    links, calls = evidence.priced.links, evidence.calls
    named = np.array([bool(CONVERTER.search(name[:NAME_CHARACTERS])) for name in evidence.events.names], dtype=bool)
    rows = np.flatnonzero(named[evidence.events.name[links.device]] & (evidence.budget.owned_ns > 0) & (links.op >= 0))
    of_op = {op: call for call, op in enumerate(calls.op.tolist()) if op >= 0}
    owner = np.array([of_op.get(op, -1) for op in links.op[rows].tolist()], dtype=np.int64)
    ns = np.zeros(len(calls))
    np.add.at(ns, owner[owner >= 0], evidence.budget.owned_ns[rows[owner >= 0]].astype(np.float64))
    converting = np.flatnonzero(ns)
    return converting, ns[converting]


def image_orders(evidence: Evidence, calls: I8) -> NDArray[np.bool_]:
    """One flag per copy: whether it converts a 4-D tensor from NCHW to NHWC, or back."""
    pairs = (_pair(evidence.group_of(call)) for call in calls.tolist())
    orders = ({dimension_order(tensor) for tensor in pair} if pair is not None else set() for pair in pairs)
    return np.array([pair_of_orders == IMAGE_ORDERS for pair_of_orders in orders], dtype=bool)


def convolutional(evidence: Evidence) -> bool:
    """Whether any call of the window is a convolution."""
    return len(evidence.calls_where(evidence.groups_where("convolution"))) > 0


@dataclass(frozen=True)
class LayoutConversions:
    """Calls that convert a memory layout, by what would make the conversion unnecessary.

    `turned`: calls with layout converters in them, and `converting`: the ns of those. `images`: copies between NCHW and
    NHWC in a model with convolutions; `others`: copies to any other order. `outside`: a processor's convolutions on
    NCHW, and `above`: their ns above their floors, at most `TURNING_NS` per element. `already`: the weights of the
    convolutions have their channels innermost.
    """

    turned: I8
    converting: NDArray[np.float64]
    images: I8
    others: I8
    outside: I8
    above: NDArray[np.float64]
    already: bool

    def image_share(self, evidence: Evidence) -> float:
        """The share of the conversions' time that channels-last images would save: 0 where the model has them."""
        if self.already:
            return 0.0
        images = float(self.converting.sum()) + float(evidence.calls.ns[self.images].sum()) + float(self.above.sum())
        total = images + float(evidence.calls.ns[self.others].sum())
        return images / total if total > 0 else 0.0


def reordered(evidence: Evidence) -> LayoutConversions:
    """All layout converters and copies into another order."""
    turned, converting = converters(evidence)
    copies = reorders(evidence)
    images = image_orders(evidence, copies) & convolutional(evidence)
    outside = _channels_outside(evidence)
    floor = np.nan_to_num(evidence.calls.floor_ns[outside], nan=np.inf)
    above = np.clip(evidence.calls.ns[outside] - floor, 0.0, TURNING_NS * _elements(evidence, outside))
    already = _has_order(evidence)
    return LayoutConversions(turned, converting, copies[images], copies[~images], outside, above, already)


def _elements(evidence: Evidence, calls: I8) -> NDArray[np.float64]:
    """The number of elements that each call reads and writes; 0 where it is not known."""
    groups = (evidence.group_of(call) for call in calls.tolist())
    return np.array([(group.work.bytes or 0.0) / DTYPE_BYTES.get(tensors(group.call)[0].dtype, 4) for group in groups])


def _has_order(evidence: Evidence) -> bool:
    """Whether convolutions whose weights have the channels innermost take more time than those with another order."""
    inside = evidence.calls_that(lambda group: _weight_inside(group) is True)
    outside = evidence.calls_that(lambda group: _weight_inside(group) is False)
    return float(evidence.calls.ns[inside].sum()) > float(evidence.calls.ns[outside].sum())


def _weight_inside(group: CallGroup) -> bool | None:
    """Whether a convolution's weight has its channels innermost; None where it is unknown, or the weight is 1 x 1."""
    four_d = _four_d(group)
    if len(four_d) < 2 or four_d[-1].strides is None or len(four_d[-1].strides) != 4:
        return None
    _, channels, *points = four_d[-1].shape
    if channels == 1 or max(points) == 1:
        return None
    return four_d[-1].strides[1] < max(four_d[-1].strides[2:])


def _four_d(group: CallGroup) -> list[Tensor]:
    """A convolution's images and, last, its weights; empty for any other call."""
    return [tensor for tensor in tensors(group.call) if len(tensor.shape) == 4 and group.work.family == "convolution"]


def _channels_outside(evidence: Evidence) -> I8:
    """A processor's convolutions on NCHW images: its library converts them within the call."""
    if not evidence.device.onednn:
        return np.empty(0, dtype=np.int64)
    return evidence.calls_that(_convolves_outside)


def _convolves_outside(group: CallGroup) -> bool:
    """Whether a convolution has NCHW images; weights with channels innermost make the library convert them anyway."""
    return not _weight_inside(group) and any(_is_outside(image) for image in _four_d(group)[:-1])


def _is_outside(image: Tensor) -> bool:
    """Whether an image of several channels and points is NCHW by its strides; False for an expanded one."""
    if image.strides is None or len(image.strides) != 4 or image.shape[1] <= IMAGE_CHANNELS:
        return False
    if 0 in image.strides:
        return False
    return image.shape[2] * image.shape[3] > 1 and image.strides[1] > max(image.strides[2:])


def over_images(evidence: Evidence, calls: I8) -> NDArray[np.bool_]:
    """One flag per call: whether one of its operands has as few channels as an image."""
    operands = (tensors(evidence.group_of(call).call) for call in calls.tolist())
    few = [any(len(item.shape) >= 4 and item.shape[1] <= IMAGE_CHANNELS for item in of_call) for of_call in operands]
    return np.array(few, dtype=bool)


def _pair(group: CallGroup) -> tuple[Tensor, Tensor] | None:
    """(target, source) of a copy between tensors of one shape."""
    operands = tensors(group.call)
    if group.call.name.removeprefix("aten::") not in COPY_OPS or len(operands) < 2 or group.work.link != "memory":
        return None
    target, source = operands[:2]
    return (target, source) if target.shape == source.shape and target.shape else None


def _casts(group: CallGroup) -> bool:
    pair = _pair(group)
    return pair is not None and pair[0].dtype != pair[1].dtype and {tensor.dtype for tensor in pair} <= set(FLOATING)


def _dequantises(group: CallGroup) -> bool:
    pair = _pair(group)
    return pair is not None and pair[1].dtype.startswith(QUANTISED) and pair[0].dtype in FLOATING


def _reorders(group: CallGroup) -> bool:
    pair = _pair(group)
    if pair is None or pair[0].dtype != pair[1].dtype:
        return False
    target, source = (dimension_order(tensor) for tensor in pair)
    return target is not None and source is not None and target != source


def dimension_order(tensor: Tensor) -> tuple[int, ...] | None:
    """Dimensions from the outermost in memory to the innermost; None without strides or where a size is repeated."""
    if tensor.strides is None or len(tensor.strides) != len(tensor.shape):
        return None
    kept = [dim for dim, size in enumerate(tensor.shape) if size > 1]
    if any(tensor.strides[dim] == 0 for dim in kept):
        return None
    return tuple(sorted(kept, key=lambda dim: -tensor.strides[dim]))  # type: ignore[index]


_WEIGHT_PLACE = {"aten::linear": 1, "aten::conv1d": 1, "aten::conv2d": 1, "aten::conv3d": 1, "aten::convolution": 1}
"""Which argument of an operation is its weight."""


def _of_weight(evidence: Evidence, call: int, known: dict[tuple[int, int], bool]) -> bool:
    """Whether the operation around a cast has a weight of the cast's shape, and an input of another shape.

    `known`: the answers so far, by the cast's group and the operation's shapes.
    """
    for row in evidence.ancestors(int(evidence.calls.op[call])):
        place, dims = _WEIGHT_PLACE.get(evidence.events.name_of(row)), int(evidence.events.dims[row])
        if place is not None and dims >= 0:
            key = int(evidence.calls.group[call]), dims
            if key not in known:
                shape = list(tensors(evidence.group_of(call).call)[0].shape)
                known[key] = _is_weight(evidence.events.texts[dims], place, shape)
            return known[key]
    return False


def _is_weight(text: bytes, place: int, shape: list[int]) -> bool:
    """Whether the recorded shapes have `shape` at `place` and another one as the input; False for any other JSON."""
    try:
        shapes = json.loads(text)
    except (ValueError, UnicodeDecodeError):
        return False
    return isinstance(shapes, list) and len(shapes) > place and shapes[place] == shape and shapes[0] != shape
