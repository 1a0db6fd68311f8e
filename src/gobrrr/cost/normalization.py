"""Normalizations. FLOP an element: forward 8 (mean, variance, scale, shift), RMS 4, backward twice that.

Statistics over a row that fits the chip are taken from one read; statistics over a whole channel (batch norm in
training, group norm) make the kernels read their input twice, and it is counted twice.
"""

from __future__ import annotations

from gobrrr.cost.arguments import flag, flags, integer, integers, is_list, maybe_tensor, tensor
from gobrrr.cost.build import vector
from gobrrr.cost.registry import Uncounted, rule
from gobrrr.cost.shapes import item_bytes, numel, read_bytes, write_bytes
from gobrrr.model.work import OpCall, Tensor, Work

NORM_FLOP = 8
RMS_FLOP = 4
BACKWARD_FACTOR = 2
"""FLOP an element, and the backward pass over the forward pass: see above."""
STATISTIC_BYTES = 4  # mean and 1/std are float32


def _rows(shape: tuple[int, ...], normalized: tuple[int, ...] | None) -> int:
    """Rows that are normalized each for itself; the last dimension when the normalized shape isn't recorded."""
    inner = numel(normalized) if normalized else (shape[-1] if shape else 1)
    return numel(shape) // inner if inner else 0


@rule("aten::native_layer_norm", "aten::layer_norm", family="normalization")
def _layer_norm(call: OpCall) -> Work:
    given = tensor(call, 0)
    rows = _rows(given.shape, integers(call, 1))
    count = numel(given.shape)
    read = read_bytes(given, maybe_tensor(call, 2), maybe_tensor(call, 3))
    written = write_bytes(given.shape, given.dtype) + 2 * STATISTIC_BYTES * rows
    return vector(flop=NORM_FLOP * count, dtype=given.dtype, read=read, written=written)


@rule("aten::_fused_rms_norm", "aten::rms_norm", family="normalization")
def _rms_norm(call: OpCall) -> Work:
    given, normalized = tensor(call, 0), integers(call, 1)
    if normalized and not is_list(call, 1):  # before torch 2.9 the fused op took how many dimensions, not their sizes
        normalized = given.shape[len(given.shape) - max(0, min(normalized[0], len(given.shape))) :]
    rows = _rows(given.shape, normalized)
    read = read_bytes(given, maybe_tensor(call, 2))
    written = write_bytes(given.shape, given.dtype) + STATISTIC_BYTES * rows
    return vector(flop=RMS_FLOP * numel(given.shape), dtype=given.dtype, read=read, written=written)


@rule("aten::native_layer_norm_backward", family="normalization")
def _layer_norm_backward(call: OpCall) -> Work:
    grad, given = tensor(call, 0), tensor(call, 1)
    statistics = (maybe_tensor(call, 3), maybe_tensor(call, 4))
    affine = (maybe_tensor(call, 5), maybe_tensor(call, 6))
    return _row_backward(grad, given, statistics, affine, flags(call, 7), NORM_FLOP)


@rule("aten::_fused_rms_norm_backward", family="normalization")
def _rms_norm_backward(call: OpCall) -> Work:
    grad, given = tensor(call, 0), tensor(call, 1)
    return _row_backward(grad, given, (maybe_tensor(call, 3),), (maybe_tensor(call, 4),), flags(call, 5), RMS_FLOP)


def _row_backward(
    grad: Tensor,
    given: Tensor,
    statistics: tuple[Tensor | None, ...],
    affine: tuple[Tensor | None, ...],
    mask: tuple[bool, ...] | None,
    flop: int,
) -> Work:
    """One kernel for the input's gradient, one for those of weight and bias: each reads both big tensors."""
    if mask is None:
        raise Uncounted("which gradients are computed is not recorded")
    weights = [
        parameter for parameter, wanted in zip(affine, mask[1:], strict=False) if wanted and parameter is not None
    ]
    passes = int(mask[0]) + int(bool(weights))
    read = passes * read_bytes(grad, given, *statistics) + (read_bytes(affine[0]) if mask[0] else 0.0)
    written = sum(write_bytes(weight.shape, weight.dtype) for weight in weights)
    written += write_bytes(given.shape, given.dtype) if mask[0] else 0.0
    work = BACKWARD_FACTOR * flop * numel(given.shape)
    return vector(flop=work, dtype=given.dtype, read=read, written=written)


@rule(
    "aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm", "aten::batch_norm",
    "aten::_batch_norm_impl_index", "aten::_native_batch_norm_legit", "aten::instance_norm",
    "aten::_native_batch_norm_legit_functional", family="normalization",
)  # fmt: skip
def _batch_norm(call: OpCall) -> Work:
    # The overload without running statistics has its flag where the others have the running mean.
    training = flag(call, 3) if call.name == "aten::_native_batch_norm_legit" and flag(call, 3) is not None else None
    training = flag(call, 5) if training is None else training
    return _channel_norm(call, tensor(call, 0), training)


@rule("aten::_batch_norm_with_update", "aten::_batch_norm_with_update_functional", family="normalization")
def _batch_norm_update(call: OpCall) -> Work:
    return _channel_norm(call, tensor(call, 0), True)


@rule(
    "aten::_native_batch_norm_legit_no_training", "aten::_batch_norm_no_update", "aten::batch_norm_elemt",
    family="normalization",
)  # fmt: skip
def _batch_norm_inference(call: OpCall) -> Work:
    return _channel_norm(call, tensor(call, 0), False)


def _channel_norm(call: OpCall, given: Tensor, training: bool | None) -> Work:
    parameters = [maybe_tensor(call, place) for place in range(1, 5)]
    passes = 1 if training is False or _reads_once(call) else 2
    channels = given.shape[1] if len(given.shape) > 1 else numel(given.shape)
    # Training keeps the mean and 1/std for the backward pass and updates the running statistics.
    kept = 2 * STATISTIC_BYTES * channels + read_bytes(*parameters[2:]) if training else 0.0
    return vector(
        flop=(NORM_FLOP if training is not False else RMS_FLOP) * numel(given.shape),
        dtype=given.dtype,
        read=passes * read_bytes(given) + read_bytes(*parameters),
        written=write_bytes(given.shape, given.dtype) + kept,
        count="exact" if training is not None else "bounded",
        note="" if training is not None else "whether it trains is not recorded: taken as training",
    )


def _reads_once(call: OpCall) -> bool:
    """cuDNN's persistent kernels keep a channel on the chip between the two passes."""
    return any("singleread" in name for name in call.kernels)


@rule("aten::native_batch_norm_backward", "aten::batch_norm_backward", family="normalization")
def _batch_norm_backward(call: OpCall) -> Work:
    return _channel_backward(call, tensor(call, 0), tensor(call, 1), flag(call, 7), flags(call, 9))


@rule("aten::cudnn_batch_norm_backward", "aten::miopen_batch_norm_backward", family="normalization")
def _vendor_batch_norm_backward(call: OpCall) -> Work:
    return _channel_backward(call, tensor(call, 0), tensor(call, 1), True, (True, True, True))


def _channel_backward(
    call: OpCall, first: Tensor, second: Tensor, training: bool | None, mask: tuple[bool, ...] | None
) -> Work:
    """A reduction over both inputs, then a pass that reads them again for the input's gradient."""
    wanted = mask if mask is not None and len(mask) == 3 else (True, True, True)
    reduces = training is not False or any(wanted[1:])
    passes = 1 if _reads_once(call) else int(reduces) + int(wanted[0])
    channels = first.shape[1] if len(first.shape) > 1 else numel(first.shape)
    return vector(
        flop=BACKWARD_FACTOR * NORM_FLOP * numel(first.shape),
        dtype=first.dtype,
        read=passes * read_bytes(first, second) + read_bytes(*(maybe_tensor(call, place) for place in range(2, 7))),
        written=wanted[0] * write_bytes(first.shape, first.dtype) + sum(wanted[1:]) * channels * STATISTIC_BYTES,
        count="exact" if mask is not None else "bounded",
        note="" if mask is not None else "all gradients are taken as computed",
    )


@rule("aten::batch_norm_stats", "aten::batch_norm_collect_statistics", family="normalization")
def _batch_norm_stats(call: OpCall) -> Work:
    given = tensor(call, 0)
    channels = given.shape[1] if len(given.shape) > 1 else 1
    flop = RMS_FLOP * numel(given.shape)
    return vector(flop=flop, dtype=given.dtype, read=read_bytes(given), written=2 * STATISTIC_BYTES * channels)


@rule("aten::batch_norm_backward_reduce", family="normalization")
def _batch_norm_backward_reduce(call: OpCall) -> Work:
    grad, given = tensor(call, 0), tensor(call, 1)
    channels = given.shape[1] if len(given.shape) > 1 else 1
    read = read_bytes(grad, given)
    return vector(
        flop=RMS_FLOP * numel(given.shape), dtype=given.dtype, read=read, written=4 * STATISTIC_BYTES * channels
    )


@rule("aten::batch_norm_backward_elemt", family="normalization")
def _batch_norm_backward_elemt(call: OpCall) -> Work:
    grad, given = tensor(call, 0), tensor(call, 1)
    return vector(
        flop=NORM_FLOP * numel(given.shape),
        dtype=given.dtype,
        read=read_bytes(grad, given),
        written=write_bytes(given.shape, given.dtype),
    )


@rule("aten::native_group_norm", "aten::group_norm", family="normalization")
def _group_norm(call: OpCall) -> Work:
    given = tensor(call, 0)
    composite = call.name == "aten::group_norm"
    affine = [maybe_tensor(call, place) for place in ((2, 3) if composite else (1, 2))]
    # Mean and 1/std of each sample's groups.
    kept = 2 * STATISTIC_BYTES * max(0, (integer(call, 3) or 0) * (integer(call, 6) or 0)) if not composite else 0.0
    return vector(
        flop=NORM_FLOP * numel(given.shape),
        dtype=given.dtype,
        read=2 * read_bytes(given) + read_bytes(*affine),
        written=write_bytes(given.shape, given.dtype) + kept,
    )


@rule("aten::batch_norm_update_stats", family="normalization")
def _update_statistics(call: OpCall) -> Work:
    given, running = tensor(call, 0), (maybe_tensor(call, 1), maybe_tensor(call, 2))
    channels = given.shape[1] if len(given.shape) > 1 else 1
    return vector(
        flop=RMS_FLOP * numel(given.shape),
        dtype=given.dtype,
        read=read_bytes(given, *running),
        written=2 * STATISTIC_BYTES * channels + read_bytes(*running),
    )


@rule("aten::batch_norm_gather_stats", "aten::batch_norm_gather_stats_with_counts", family="normalization")
def _gather_statistics(call: OpCall) -> Work:
    """(input, means, 1/stds, ...) of every rank: only the statistics are read."""
    means, deviations = tensor(call, 1), tensor(call, 2)
    channels = means.shape[-1] if means.shape else 1
    written = 2 * STATISTIC_BYTES * channels + read_bytes(maybe_tensor(call, 3), maybe_tensor(call, 4))
    return vector(
        flop=NORM_FLOP * numel(means.shape), dtype=means.dtype, read=read_bytes(means, deviations), written=written
    )


@rule("aten::_weight_norm_interface", family="normalization")
def _weight_norm(call: OpCall) -> Work:
    """v g / |v|: a square and a sum, a factor: 4 FLOP an element; the norms are kept."""
    given, scale = tensor(call, 0), tensor(call, 1)
    written = write_bytes(given.shape, given.dtype) + write_bytes(scale.shape, scale.dtype)
    return vector(flop=RMS_FLOP * numel(given.shape), dtype=given.dtype, read=read_bytes(given, scale), written=written)


@rule("aten::_weight_norm_interface_backward", family="normalization")
def _weight_norm_backward(call: OpCall) -> Work:
    grad, given, scale, norms = (tensor(call, place) for place in range(4))
    return vector(
        flop=BACKWARD_FACTOR * RMS_FLOP * numel(given.shape),
        dtype=given.dtype,
        read=read_bytes(grad, given, scale, norms),
        written=write_bytes(given.shape, given.dtype) + write_bytes(scale.shape, scale.dtype),
    )


@rule("aten::native_group_norm_backward", family="normalization")
def _group_norm_backward(call: OpCall) -> Work:
    grad, given, weight = tensor(call, 0), tensor(call, 1), maybe_tensor(call, 4)
    mask = flags(call, 9) or (True, True, True)
    # Sums over each group, then the input's gradient from both tensors again.
    passes = 1 + int(mask[0])
    parameters = sum(mask[1:]) * (numel(weight.shape) * item_bytes(weight.dtype) if weight is not None else 0.0)
    return vector(
        flop=BACKWARD_FACTOR * NORM_FLOP * numel(given.shape),
        dtype=given.dtype,
        read=passes * read_bytes(grad, given) + read_bytes(weight),
        written=mask[0] * write_bytes(given.shape, given.dtype) + parameters,
    )
