"""Copies on the device by what they change: the element type, or the order of the dimensions in memory."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.events.calls import NAME_CHARACTERS
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.fusion import tensors
from gobrrr.analysis.pricing.price import Group
from gobrrr.model.events import I8
from gobrrr.model.work import ITEM_BYTES, Tensor

IMAGE_CHANNELS = 4
"""A convolution over as few channels is the network's first: images come in the usual order from the loader."""

COPIES = ("copy_", "_to_copy", "clone", "contiguous")

TURNING_NS = 4.2
"""What having the channels outside costs a processor's convolution for each element that it reads and writes, at the
most. Of 29 that were measured both ways round (forward and backward, dense, grouped and depthwise, float32, torch 2.13,
one thread of an AMD EPYC) the most was 4.1 ns; nearly half took 0.5 ns or less, eight of them nothing at all."""

IMAGE_ORDERS = {(0, 1, 2, 3), (0, 2, 3, 1)}
"""Dimensions of [N, C, H, W] from the outermost in memory to the innermost: channels outside, channels inside."""

FLOATING = ("float64", "float32", "bfloat16", "float16")
QUANTISED = ("int8", "uint8", "float8")

CONVERTER = re.compile(r"nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|tensorTransform|batched_transpose", re.IGNORECASE)
"""Kernels in which a convolution library turns its operands into the order that its own kernel takes."""


def casts(evidence: Evidence) -> I8:
    """Calls that only turn a tensor of one floating type into another."""
    return evidence.calls_where(np.array([_casts(group) for group in evidence.priced.groups], dtype=bool))


def dequantisations(evidence: Evidence) -> I8:
    """Calls that only turn a tensor of one byte an element into a floating type."""
    return evidence.calls_where(np.array([_dequantises(group) for group in evidence.priced.groups], dtype=bool))


def reorders(evidence: Evidence) -> I8:
    """Calls that only write the same elements in another order of the dimensions, in the same type."""
    return evidence.calls_where(np.array([_reorders(group) for group in evidence.priced.groups], dtype=bool))


def weight_casts(evidence: Evidence, calls: I8) -> NDArray[np.bool_]:
    """One flag for each of some casts: whether it converts the weight of the linear or convolution around it."""
    known: dict[tuple[int, int], bool] = {}
    return np.array([_of_weight(evidence, call, known) for call in calls.tolist()], dtype=bool)


def converters(evidence: Evidence) -> tuple[I8, NDArray[np.float64]]:
    """(calls, nanoseconds of their layout converters) of the calls of convolutions that have any."""
    links, calls = evidence.priced.links, evidence.calls
    named = np.array([bool(CONVERTER.search(name[:NAME_CHARACTERS])) for name in evidence.events.names], dtype=bool)
    rows = np.flatnonzero(named[evidence.events.name[links.device]] & (evidence.budget.owned_ns > 0) & (links.op >= 0))
    of_op = {op: call for call, op in enumerate(calls.op.tolist()) if op >= 0}
    owner = np.array([of_op.get(op, -1) for op in links.op[rows].tolist()], dtype=np.int64)
    ns = np.zeros(len(calls))
    np.add.at(ns, owner[owner >= 0], evidence.budget.owned_ns[rows[owner >= 0]].astype(np.float64))
    found = np.flatnonzero(ns)
    return found, ns[found]


def image_orders(evidence: Evidence, calls: I8) -> NDArray[np.bool_]:
    """One flag a copy: whether it turns a 4-D tensor from channels outside (NCHW) to inside (NHWC), or back."""
    pairs = (_pair(evidence.group_of(call)) for call in calls.tolist())
    orders = ({dimension_order(tensor) for tensor in pair} if pair is not None else set() for pair in pairs)
    return np.array([found == IMAGE_ORDERS for found in orders], dtype=bool)


def convolutional(evidence: Evidence) -> bool:
    """Whether any call of the window is a convolution."""
    return len(evidence.calls_where(evidence.groups_where("convolution"))) > 0


@dataclass(frozen=True)
class Reordered:
    """Calls that turn a layout around, and the nanoseconds of it, by what would make it vanish.

    `turned`: convolutions with converters in them; `images`: copies between NCHW and NHWC in a model that convolves;
    `others`: copies into any other order. `outside`: a processor's convolutions on NCHW, and what they take above their
    floors, at most `TURNING_NS` an element. `already`: the weights of the convolutions have their channels innermost.
    """

    turned: I8
    converting: NDArray[np.float64]
    images: I8
    others: I8
    outside: I8
    above: NDArray[np.float64]
    already: bool

    def image_share(self, evidence: Evidence) -> float:
        """Share of the time that the model's order of images is to blame for: none where it is the right one."""
        if self.already:
            return 0.0
        images = float(self.converting.sum()) + float(evidence.calls.ns[self.images].sum()) + float(self.above.sum())
        total = images + float(evidence.calls.ns[self.others].sum())
        return images / total if total > 0 else 0.0


def reordered(evidence: Evidence) -> Reordered:
    """All layout converters and copies into another order."""
    turned, converting = converters(evidence)
    copies = reorders(evidence)
    images = image_orders(evidence, copies) & convolutional(evidence)
    outside = _channels_outside(evidence)
    floor = np.nan_to_num(evidence.calls.floor_ns[outside], nan=np.inf)
    above = np.clip(evidence.calls.ns[outside] - floor, 0.0, TURNING_NS * _elements(evidence, outside))
    already = _has_order(evidence)
    return Reordered(turned, converting, copies[images], copies[~images], outside, above, already)


def _elements(evidence: Evidence, calls: I8) -> NDArray[np.float64]:
    """What each call reads and writes; 0 where that is not known."""
    groups = (evidence.group_of(call) for call in calls.tolist())
    return np.array([(group.work.bytes or 0.0) / ITEM_BYTES.get(tensors(group.call)[0].dtype, 4) for group in groups])


def _has_order(evidence: Evidence) -> bool:
    """Whether most of the time of convolutions whose weights have an order is of such with the channels innermost."""
    groups = evidence.priced.groups
    orders = [_weight_inside(group) for group in groups]
    inside, outside = (
        evidence.calls_where(np.array([order is wanted for order in orders], dtype=bool)) for wanted in (True, False)
    )
    ns = evidence.calls.ns
    return float(ns[inside].sum()) > float(ns[outside].sum())


def _weight_inside(group: Group) -> bool | None:
    """Whether a convolution's weight has its channels innermost; None where it has no order: of 1 x 1, or unknown."""
    given = (
        [tensor for tensor in tensors(group.call) if len(tensor.shape) == 4]
        if group.work.family == "convolution"
        else []
    )
    if len(given) < 2 or given[-1].strides is None or len(given[-1].strides) != 4:
        return None
    _, channels, *points = given[-1].shape
    if channels == 1 or max(points) == 1:
        return None
    return given[-1].strides[1] < max(given[-1].strides[2:])


def _channels_outside(evidence: Evidence) -> I8:
    """A processor's convolutions whose images have their channels outside: its library turns them within the call."""
    if not evidence.device.onednn:
        return np.empty(0, dtype=np.int64)
    return evidence.calls_where(np.array([_convolves_outside(group) for group in evidence.priced.groups], dtype=bool))


def _convolves_outside(group: Group) -> bool:
    if group.work.family != "convolution":
        return False
    given = [tensor for tensor in tensors(group.call) if len(tensor.shape) == 4]
    if _weight_inside(group):
        return False  # then the library works with the channels innermost, however the images come
    # without the weights, the last of the forward and of the backward pass's tensors of images and weights
    return any(_is_outside(tensor) for tensor in given[:-1])


def _is_outside(image: Tensor) -> bool:
    """Whether an image of several channels and points is NCHW by its strides; of an expanded one nobody knows."""
    if image.strides is None or len(image.strides) != 4 or image.shape[1] <= IMAGE_CHANNELS:
        return False
    if 0 in image.strides:
        return False
    return image.shape[2] * image.shape[3] > 1 and image.strides[1] > max(image.strides[2:])


def over_images(evidence: Evidence, calls: I8) -> NDArray[np.bool_]:
    """One flag a call: whether a convolution's operands have as few channels as an image."""
    given = (tensors(evidence.group_of(call).call) for call in calls.tolist())
    return np.array(
        [any(len(tensor.shape) >= 4 and tensor.shape[1] <= IMAGE_CHANNELS for tensor in some) for some in given],
        dtype=bool,
    )


def _pair(group: Group) -> tuple[Tensor, Tensor] | None:
    """(target, source) of a copy between tensors of one shape."""
    given = tensors(group.call)
    if group.call.name.removeprefix("aten::") not in COPIES or len(given) < 2 or group.work.link != "memory":
        return None
    target, source = given[:2]
    return (target, source) if target.shape == source.shape and target.shape else None


def _casts(group: Group) -> bool:
    pair = _pair(group)
    return pair is not None and pair[0].dtype != pair[1].dtype and {tensor.dtype for tensor in pair} <= set(FLOATING)


def _dequantises(group: Group) -> bool:
    pair = _pair(group)
    return pair is not None and pair[1].dtype.startswith(QUANTISED) and pair[0].dtype in FLOATING


def _reorders(group: Group) -> bool:
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


def _of_weight(evidence: Evidence, call: int, known: dict[tuple[int, int], bool]) -> bool:
    """Whether the operation around the cast has a weight of the cast's shape (and an input of another).

    `known`: what was found for the group and the arguments before.
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
        given = json.loads(text)
    except (ValueError, UnicodeDecodeError):
        return False
    return isinstance(given, list) and len(given) > place and given[place] == shape and given[0] != shape
