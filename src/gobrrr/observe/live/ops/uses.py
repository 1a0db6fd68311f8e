"""Calls of one step whose arguments' values or identity matter, as they are dispatched (gobrrr.model.live.TensorUse).

    weight_cast  a parameter converted to another dtype in the forward pass. `count`: how often the same one in a step;
                 `total`: conversions; `bytes`: read and written; `share`: how many of these bytes are unnecessary. In
                 training a parameter that learns must be converted to a smaller dtype once a step; all other
                 conversions need be made only once. `op` is "autocast" where torch converts on its own.
    padding      `share` of `total` ids of an embedding, keys of an attention mask or targets of a loss is padding.
    flagged_mask a mask of a fused attention leaves `share` of `total` scores: all, or those that is_causal leaves.
    duplicates   `share` of the `total` places that are added to repeats an earlier one.
    rows         `share` of the `total` rows of an embedding's table is looked up, or has a gradient; `bytes`: of the
                 table or the gradient.
    cat_growth   a tensor that `torch.cat` extends again and again. `count`: how often; `total`: its final length;
                 `bytes`: read and written; `share`: how much of what was written had been there before.

`count` elsewhere: how many calls. One finding holds the calls of one line on the same class of module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from gobrrr.model.live import TensorUse
from gobrrr.model.recording import RecordedCall
from gobrrr.observe.live.apart import apart
from gobrrr.observe.live.ops import readings
from gobrrr.observe.static.arguments import dtype_word, schema_of
from gobrrr.observe.static.memory import storage_of
from gobrrr.observe.static.sites import Sites

MOST_SHAPES = 3
"""Shapes that a finding names; chosen."""
MOST_GROWING = 64
"""Results of `torch.cat` at one place that are remembered; chosen."""
Given = dict[str, Any]
"""The arguments of an operation, by name."""


@dataclass
class _Finding:
    """The calls of one line, summed: `part` of `total` things."""

    modules: list[str] = field(default_factory=list)
    shapes: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    part: float = 0.0
    total: int = 0
    bytes: float = 0.0


@dataclass
class _Casts(_Finding):
    """`of`: by parameter and target, [conversions here, bytes of one, whether it learns, whether it gets smaller]."""

    of: dict[Any, list[Any]] = field(default_factory=dict)


class Uses:
    """Call `see` for each operation, and `found` at the end."""

    def __init__(self, sites: Sites) -> None:
        self._sites = sites
        self.unread = 0  # operations that may have been a use, but whose arguments could not be read
        self.autocast: str | None = None  # the type that a module's forward ran in, where autocast was on
        self._weights: dict[int, Any] = {}
        self._findings: dict[tuple[Any, ...], _Finding] = {}
        self._times: Counter[Any] = Counter()  # conversions of a parameter in the whole step
        self._casts: dict[tuple[Any, ...], _Casts] = {}
        self._grown: dict[int, dict[int, Any]] = {}
        self._masks: dict[tuple[Any, ...], tuple[Any, tuple[int, int] | None]] = {}

    def module(self, module: Any, _: Any) -> None:
        """A hook before a module's forward: notes its parameters, and quantised matrices in its buffers."""
        for kind in ("cuda", "cpu"):
            if torch.is_autocast_enabled(kind):
                self.autocast = str(torch.get_autocast_dtype(kind)).removeprefix("torch.")
        with apart():
            buffers = [buffer for buffer in module._buffers.values() if buffer is not None]
            kept = [buffer for buffer in buffers if buffer.dim() > 1 and buffer.element_size() == 1]
            for parameter in (*module._parameters.values(), *kept):
                if parameter is not None and (storage := storage_of(parameter)) is not None:
                    self._weights.setdefault(storage._cdata, parameter)

    def see(self, func: Any, args: tuple[Any, ...], kwargs: Given, outputs: Any, call: RecordedCall) -> None:
        """One operation, after it ran. One whose arguments can't be read is counted in `unread`; nothing is raised."""
        look = _LOOKS.get(schema_of(func)[0])
        if look is None:
            return
        given = {name: value for (name, _), value in zip(schema_of(func)[1], args, strict=False)} | kwargs
        try:
            look(self, given, outputs, call)
        except (RuntimeError, TypeError, KeyError, NotImplementedError):  # an unusual kind of tensor
            self.unread += 1

    def found(self, *, training: bool) -> tuple[TensorUse, ...]:
        """What was seen. `training`: a backward pass was in the step."""
        casts = [_cast_use(key, cast, self._times, training) for key, cast in self._casts.items()]
        return (*casts, *(_use(key, finding) for key, finding in self._findings.items() if finding.part))

    # -- conversions of parameters

    def _cast(self, given: Given, output: Any, call: RecordedCall) -> None:
        tensor = given["self"]
        if call.phase != "forward" or output.dtype == tensor.dtype or output.device != tensor.device:
            return
        storage = storage_of(tensor)
        weight = tensor if isinstance(tensor, torch.nn.Parameter) else self._weights.get(getattr(storage, "_cdata", 0))
        if weight is None:
            return
        pair = f"{dtype_word(tensor.dtype)} -> {dtype_word(output.dtype)}"
        casts = self._group(self._casts, _Casts, "weight_cast", _who_casts(output), call, pair)
        size = float(tensor.numel() * (tensor.element_size() + output.element_size()))
        casts.shapes[f"{_shape(tensor)} {pair}"] += 1
        casts.bytes += size
        key = (storage._cdata, tensor.storage_offset(), tensor.numel(), output.dtype)
        self._times[key] += 1
        smaller = output.element_size() < tensor.element_size()
        casts.of.setdefault(key, [0, size, bool(weight.requires_grad), smaller])[0] += 1

    # -- padding

    def _embedding(self, given: Given, output: Any, call: RecordedCall) -> None:
        weight, ids = given["weight"], given["indices"]
        pad, rows = given.get("padding_idx", -1), weight.shape[0]
        with readings.readable(ids) as can_read:
            if not can_read:
                return
            padding = readings.equal_to(ids, pad) if pad >= 0 else readings.run_ends(ids, rows)
            used = readings.kinds(ids)
        if padding:
            self._put("padding", call, _shape(ids), padding, ids.numel())
        if used is not None:
            self._put("rows", call, _shape(weight), used, rows, weight.numel() * weight.element_size())

    def _targets(self, given: Given, output: Any, call: RecordedCall) -> None:
        target = given["target"]
        with readings.readable(target) as can_read:
            ignored = readings.equal_to(target, given.get("ignore_index", -100)) if can_read else None
        if ignored:
            self._put("padding", call, _shape(target), ignored, target.numel())

    def _attention(self, given: Given, output: Any, call: RecordedCall) -> None:
        mask = given.get("attn_mask", given.get("attn_bias"))
        if mask is None:
            return
        self._mask(mask, call, hides=False)
        with readings.readable(mask) as can_read:
            seen = readings.flagged(mask) if can_read else None
        if seen is not None:
            self._put("flagged_mask", call, _shape(mask), *seen)

    def _filled(self, given: Given, output: Any, call: RecordedCall) -> None:
        value, scores, mask = given["value"], given["self"], given["mask"]
        if scores.dim() < 3 or mask.shape[-1:] != scores.shape[-1:]:
            return
        with readings.readable(scores) as can_read:
            low = can_read and float(value) <= readings.MASK_THRESHOLD
        if low:
            self._mask(mask, call, hides=True)

    def _added(self, given: Given, output: Any, call: RecordedCall) -> None:
        """A mask that hand-written attention adds to its scores: it broadcasts, so it is smaller than they are."""
        scores, mask = given["self"], given["other"]
        if not isinstance(mask, torch.Tensor) or not isinstance(scores, torch.Tensor) or call.phase != "forward":
            return
        if scores.dim() != 4 or mask.dim() not in (3, 4) or not mask.is_floating_point():
            return
        if mask.shape[-1] == scores.shape[-1] and mask.numel() < scores.numel():
            self._mask(mask, call, hides=False)

    def _mask(self, mask: Any, call: RecordedCall, *, hides: bool) -> None:
        storage = storage_of(mask)
        if storage is None:
            return
        key = (storage._cdata, mask._version if not mask.is_inference() else 0, tuple(mask.shape), mask.stride(), hides)
        known = self._masks.get(key)
        if known is not None and not known[0].expired():  # the same mask in each layer
            share = known[1]
        else:
            with readings.readable(mask) as can_read:
                share = readings.hidden_keys(mask, hides=hides) if can_read else None
            self._masks[key] = (StorageWeakRef(storage), share)
        if share is not None and share[0]:
            self._put("padding", call, _shape(mask), *share)

    # -- repeated places, rows

    def _accumulated(self, given: Given, output: Any, call: RecordedCall) -> None:
        if not given.get("accumulate", False):
            return
        target, indices = given["self"], given["indices"]
        first = next((index for index in indices if index is not None), target)
        with readings.readable(first) as can_read:
            repeated = readings.repeats(indices, target.shape) if can_read else None
        self._duplicates(repeated, call, target)

    def _scattered(self, given: Given, output: Any, call: RecordedCall) -> None:
        index = given["index"]
        with readings.readable(index) as can_read:
            repeated = readings.scattered(index, given["dim"]) if can_read else None
        self._duplicates(repeated, call, given["self"])

    def _indexed(self, given: Given, output: Any, call: RecordedCall) -> None:
        index = given["index"]
        with readings.readable(index) as can_read:
            repeated = readings.repeats([index], [given["self"].shape[given["dim"]]]) if can_read else None
        self._duplicates(repeated, call, given["self"])

    def _duplicates(self, repeated: tuple[int, int] | None, call: RecordedCall, target: Any) -> None:
        if repeated is not None and repeated[0]:
            self._put("duplicates", call, _shape(target), *repeated)

    def _rows(self, given: Given, output: Any, call: RecordedCall) -> None:
        ids, rows = given["indices"], given["num_weights"]
        with readings.readable(ids) as can_read:
            used = readings.kinds(ids) if can_read else None
        if used is not None:
            self._put("rows", call, _shape(output), used, int(rows), output.numel() * output.element_size())

    # -- growth

    def _joined(self, given: Given, output: Any, call: RecordedCall) -> None:
        tensors = list(given["tensors"])
        at_site = self._grown.setdefault(call.site, {})
        storage = storage_of(output)
        if not tensors or storage is None:
            return
        first = tensors[0]
        last = at_site.pop(getattr(storage_of(first), "_cdata", 0), None)
        if last is not None and not last.expired() and 0 < first.numel() < output.numel():
            moved = 2 * output.numel() * output.element_size()  # all of it read, and written
            finding = self._group(self._findings, _Finding, "cat_growth", call.call.name, call)
            finding.calls += 1
            finding.shapes = Counter([_shape(output)])
            finding.bytes += moved
            finding.part += 2.0 * first.numel() * first.element_size()
            finding.total = max(finding.total, int(output.shape[given.get("dim", 0)]))
        if len(at_site) >= MOST_GROWING:
            for key in [key for key, ref in at_site.items() if ref.expired()] or list(at_site)[:1]:
                del at_site[key]
        at_site[storage._cdata] = StorageWeakRef(storage)

    # -- findings

    def _put(self, kind: str, call: RecordedCall, shapes: str, part: int, total: int, size: float = 0.0) -> None:
        finding = self._group(self._findings, _Finding, kind, call.call.name, call, shapes if kind == "rows" else "")
        finding.calls += 1
        finding.part += part
        finding.total += total
        finding.bytes += size
        finding.shapes[shapes] += 1

    def _group(self, findings: Any, make: Any, kind: str, op: str, call: RecordedCall, variant: str = "") -> Any:
        """The finding of a call's line and class of module; findings of another `variant` are separate."""
        site = self._sites.found[call.site]
        module = site.modules[-1] if site.modules else ""
        key = (kind, op, site.user or site.source, module.rpartition("_")[0], variant)
        finding = findings.get(key)
        if finding is None:
            finding = findings[key] = make()
        if module and module not in finding.modules:
            finding.modules.append(module)
        return finding


def _cast_use(key: tuple[Any, ...], casts: _Casts, times: Counter[Any], training: bool) -> TensorUse:
    spared = 0.0
    for which, (count, size, learns, smaller) in casts.of.items():
        needed = count / times[which] if training and learns and smaller else 0.0  # one a step, shared by all lines
        spared += size * (count - needed)
    return TensorUse(
        kind=key[0],
        op=key[1],
        source=key[2],
        module=_module(casts),
        shapes=_shapes(casts),
        count=max(times[which] for which in casts.of),
        bytes=casts.bytes,
        share=spared / casts.bytes if casts.bytes else None,
        total=sum(count for count, *_ in casts.of.values()),
    )


def _use(key: tuple[Any, ...], finding: _Finding) -> TensorUse:
    whole = finding.bytes if key[0] == "cat_growth" else float(finding.total)
    return TensorUse(
        kind=key[0],
        op=key[1],
        source=key[2],
        module=_module(finding),
        shapes=_shapes(finding),
        count=finding.calls,
        bytes=finding.bytes or None,
        share=finding.part / whole if whole else None,
        total=finding.total,
    )


def _module(finding: _Finding) -> str | None:
    """The module's name; the name of the class for several modules."""
    if len(finding.modules) < 2:
        return finding.modules[0] if finding.modules else None
    return finding.modules[0].rpartition("_")[0]


def _shapes(finding: _Finding) -> str:
    first = [text if times == 1 else f"{times} x {text}" for text, times in finding.shapes.most_common(MOST_SHAPES)]
    rest = len(finding.shapes) - len(first)
    return ", ".join(first) + (f" and {rest} more shapes" if rest else "")


def _shape(tensor: Any) -> str:
    return str(list(tensor.shape))


def _who_casts(output: Any) -> str:
    """ "autocast" within a region of autocast to this dtype, where the program's own casts look the same."""
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return "autocast" if depth and output.dtype == torch.get_autocast_dtype(output.device.type) else "aten::_to_copy"


_Look = Callable[[Uses, Given, Any, RecordedCall], None]
_LOOKS: dict[str, _Look] = {  # by operation, what reads its arguments
    "aten::_to_copy": Uses._cast,
    "aten::embedding": Uses._embedding,
    "aten::embedding_dense_backward": Uses._rows,
    "aten::_embedding_bag_dense_backward": Uses._rows,
    "aten::cat": Uses._joined,
    **dict.fromkeys(("aten::nll_loss_forward", "aten::nll_loss2d_forward"), Uses._targets),
    **dict.fromkeys(("aten::masked_fill", "aten::masked_fill_"), Uses._filled),
    **dict.fromkeys(("aten::add", "aten::add_"), Uses._added),
    **dict.fromkeys(("aten::scatter_add", "aten::scatter_add_"), Uses._scattered),
    **dict.fromkeys(("aten::index_add", "aten::index_add_"), Uses._indexed),
    **dict.fromkeys(
        ("aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index_put"), Uses._accumulated
    ),
    **dict.fromkeys(
        (
            "aten::_scaled_dot_product_efficient_attention",
            "aten::_scaled_dot_product_cudnn_attention",
            "aten::_scaled_dot_product_flash_attention_for_cpu",
            "aten::_scaled_dot_product_attention_math",
        ),
        Uses._attention,
    ),
}
