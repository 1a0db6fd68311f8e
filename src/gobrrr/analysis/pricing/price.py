"""For each piece of device work the call that owns it, the call's work, and its floor.

Equal calls (same op, arguments and kernels) are priced once: a trace of a million events has a few hundred kinds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.events.calls import communicates
from gobrrr.analysis.events.links import Links
from gobrrr.analysis.pricing.recorded import Recorded
from gobrrr.analysis.pricing.roofline import Floor, floor
from gobrrr.cost import contraction_flop, dtype_name, parse_inputs, price
from gobrrr.cost.parse import LARGEST_TENSOR_ELEMENTS, parse_outputs
from gobrrr.cost.shapes import write_bytes
from gobrrr.model.events import ABSENT, I8, EventKind, EventTable
from gobrrr.model.machine import Machine
from gobrrr.model.recording import Recording
from gobrrr.model.tree import sums_below
from gobrrr.model.work import UNKNOWN_WORK, Collective, OpCall, Tensor, Work

MOST_CLIMBS = 3
"""How many operations outwards a rule is looked for. Chosen, not measured."""


class WorkClass(IntEnum):
    """What a piece of device work is. Where several run at once, the budget counts an instant to the first."""

    COMPUTE = 0
    COMMUNICATION = 1
    TRANSFER = 2


@dataclass(frozen=True)
class CallGroup:
    """Equal calls, represented by `call`."""

    call: OpCall
    work: Work
    floor: Floor | None


@dataclass(frozen=True)
class Priced:
    """Device work with its owners and floors; all arrays are parallel to `links.device`.

    `group`: index into `groups`. `instance`: the call's number in the trace; -1 for work without an owner. `floor_ns`:
    the work's share of its call's floor, NaN if not priced. `kind`: `WorkClass`.
    """

    links: Links
    groups: tuple[CallGroup, ...]
    group: NDArray[np.int64]
    instance: NDArray[np.int64]
    floor_ns: NDArray[np.float64]
    kind: NDArray[np.uint8]


def price_all(events: EventTable, links: Links, machine: Machine | None, seen: Recording | None = None) -> Priced:
    """Price every piece of device work of a trace on `machine` (None: work is counted, floors stay unknown).

    `seen`: the same step as a live run recorded it; it has what the profiler leaves out of lists of tensors.
    """
    recorded = Recorded(seen)
    kind = _classes(events, links)
    order, starts, owner = _instances(links)
    signature = _signatures(events, links, order, starts, owner)
    _, first, inverse = np.unique(signature, return_index=True, return_inverse=True)
    subtree = _kernels_below(events, links)
    groups = []
    stops = np.append(starts[1:], len(order))
    for index in first:
        members = order[starts[index] : stops[index]]
        call, work = _best(events, links, int(owner[index]), members, subtree, recorded)
        groups.append(CallGroup(call, work, floor(work, machine)))
    of_instance = np.repeat(np.arange(len(starts)), stops - starts)
    group = np.empty(len(order), dtype=np.int64)
    instance = np.empty(len(order), dtype=np.int64)
    group[order] = inverse[of_instance]
    instance[order] = np.where(owner[of_instance] >= 0, of_instance, ABSENT)
    floors = _shared_floors(events, links, groups, order, starts, inverse)
    return Priced(links, tuple(groups), group, instance, floors, kind)


def _classes(events: EventTable, links: Links) -> NDArray[np.uint8]:
    device = links.device
    name, kind = events.name[device], events.kind[device]
    talks = communicates(events.names)
    across = np.array([_leaves_device(text) for text in events.names], dtype=bool)
    result = np.full(len(device), WorkClass.COMPUTE, dtype=np.uint8)
    if len(device):
        result[(kind == EventKind.KERNEL) & talks[name]] = WorkClass.COMMUNICATION
        result[(kind == EventKind.MEMCPY) & across[name]] = WorkClass.TRANSFER
    return result


def _leaves_device(name: str) -> bool:
    """Whether a copy of this name crosses the link to the host or to a peer (anything except device to device)."""
    return "PtoP" in name or not ("DtoD" in name or "Device -> Device" in name or "D2D" in name)


def _instances(links: Links) -> tuple[I8, I8, I8]:
    """(device work sorted by owner, the first of each call, the owner of each call); work without an owner is a call
    of its own."""
    order = np.lexsort((np.arange(len(links.op)), links.op))
    owner = links.op[order]
    opens = np.ones(len(order), dtype=bool)
    opens[1:] = (owner[1:] != owner[:-1]) | (owner[1:] < 0)
    starts = np.flatnonzero(opens)
    return order, starts, owner[starts]


def _mix(*columns: NDArray[np.generic]) -> NDArray[np.uint64]:
    """A 64-bit key for each row of the columns; unequal rows almost surely have unequal keys."""
    key = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        key = (key ^ column.astype(np.int64).view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    return key


def _signatures(events: EventTable, links: Links, order: I8, starts: I8, owner: I8) -> NDArray[np.uint64]:
    device = links.device[order]
    position = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    kernels = _mix(events.name[device], events.bytes[device], events.blocks[device], position, links.in_graph[order])
    kernels = np.add.reduceat(kernels, starts) if len(starts) else kernels
    known = owner >= 0
    row = np.maximum(owner, 0)
    parent = np.where(known, links.op_parent[row], ABSENT) if len(events) else owner

    def column(values: NDArray[np.generic], rows: I8, known_: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.where(known_, values[np.maximum(rows, 0)].astype(np.int64), ABSENT)

    own = [
        column(getattr(events, key), row, known) for key in ("name", "dims", "types", "strides", "concrete", "extra")
    ]
    above = [column(getattr(events, key), parent, parent >= 0) for key in ("name", "dims")]
    return _mix(*own, *above, kernels.view(np.int64))


def _kernels_below(events: EventTable, links: Links) -> I8:
    """For each row, how many pieces of device work the row and the operations within it launched."""
    count = np.bincount(links.op[links.op >= 0], minlength=len(events)).astype(np.int64)
    return count + sums_below(links.op_parent, count)


def _best(
    events: EventTable, links: Links, row: int, members: I8, subtree: I8, recorded: Recorded
) -> tuple[OpCall, Work]:
    """The call and its work; where the innermost operation has no rule, those of an outer one with the same kernels."""
    kernels = tuple(events.name_of(int(device)) for device in links.device[members])
    copied, blocks = _copied(events, links.device[members]), _blocks(events, links.device[members])
    if row < 0:
        call = OpCall(name="", kernels=kernels, copied_bytes=copied)
        return call, _unowned(call, bool(links.in_graph[members[0]]))
    own = recorded.complete(_call(events, row, kernels, copied))
    work = _as_recorded(price(own, blocks=blocks), _extra(_raw(events, events.extra[row])))
    outer, climbs = int(links.op_parent[row]), 0
    while not work.known and outer >= 0 and climbs < MOST_CLIMBS and subtree[outer] == subtree[row]:
        call = recorded.complete(_call(events, outer, kernels, copied))
        work_ = price(call, blocks=blocks)
        if work_.known and work_.count != "view":
            return call, work_
        outer, climbs = int(links.op_parent[outer]), climbs + 1
    return own, work


def _unowned(call: OpCall, in_graph: bool) -> Work:
    if call.copied_bytes is not None and all(name.startswith(("Mem", "dma")) for name in call.kernels):
        return price(msgspec.structs.replace(call, name=call.kernels[0]))
    why = "replayed from a graph: the trace holds no arguments" if in_graph else "no operation in the trace owns it"
    return msgspec.structs.replace(UNKNOWN_WORK, note=why)


def crossing(call: OpCall, direction: str) -> Work:
    """The work of a copy between host and device ("HtoD", "DtoH"): its bytes, over the link."""
    tensors = call.outputs or tuple(argument for argument in call.inputs if isinstance(argument, Tensor))[:1]
    moved = float(sum(write_bytes(tensor.shape, tensor.dtype) for tensor in tensors))
    inward = direction == "HtoD"
    return Work(
        count="exact",
        vector_flop=0.0,
        bytes_read=0.0 if inward else moved,
        bytes_written=moved if inward else 0.0,
        link="host",
        family="movement",
    )


def as_recorded(work: Work, *, recomputed: bool, needed: float) -> Work:
    """The work of a call, including what a recorder knows beyond its arguments.

    `recomputed`: the call repeats, in the backward pass, a call of the forward pass: all its FLOPs are recomputation.
    `needed`: the share of its contraction's FLOPs that the maths needs.
    """
    if work.flop is None or (needed >= 1.0 and not recomputed):
        return work
    if recomputed:
        return msgspec.structs.replace(work, recomputed_flop=work.flop, model_flop=None)
    products = contraction_flop(work)
    if not products or work.needed_flop is None:
        return work
    return msgspec.structs.replace(work, model_flop=work.needed_flop - (1.0 - needed) * products)


def _as_recorded(work: Work, extra: dict[str, Any]) -> Work:
    needed = extra.get("needed", 1.0)
    share = min(max(float(needed), 0.0), 1.0) if isinstance(needed, int | float) else 1.0
    return as_recorded(work, recomputed=extra.get("recomputed") is True, needed=share)


def _call(events: EventTable, row: int, kernels: tuple[str, ...], copied: int | None) -> OpCall:
    extra = _extra(_raw(events, events.extra[row]))
    inputs = parse_inputs(
        _raw(events, events.dims[row]),
        _raw(events, events.types[row]),
        _raw(events, events.strides[row]),
        _raw(events, events.concrete[row]),
    )
    return OpCall(
        name=events.name_of(row),
        inputs=inputs,
        kernels=kernels,
        copied_bytes=copied,
        collective=_collective(extra),
        outputs=parse_outputs(extra.get("outputs")),
    )


def _raw(events: EventTable, index: np.int32) -> bytes | None:
    return events.texts[int(index)] if index >= 0 else None


def _copied(events: EventTable, rows: I8) -> int | None:
    """Recorded bytes of the copies and sets among `rows`; None if there is none, or one has no record."""
    moves = rows[np.isin(events.kind[rows], (EventKind.MEMCPY, EventKind.MEMSET))]
    if not len(moves) or (events.bytes[moves] < 0).any():
        return None
    return int(events.bytes[moves].sum())


def _blocks(events: EventTable, rows: I8) -> int | None:
    """Recorded thread blocks of the kernels among `rows`; None if one has no record."""
    kernels = events.blocks[rows[events.kind[rows] == EventKind.KERNEL]]
    return int(kernels.sum()) if len(kernels) and (kernels >= 0).all() else None


def _extra(raw: bytes | None) -> dict[str, Any]:
    """The JSON object of what an event records beyond its arguments; empty where there is none."""
    if raw is None:
        return {}
    try:
        fields = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def collective(extra: bytes | None) -> Collective | None:
    """The collective that an event's record describes; None where it describes none."""
    return _collective(_extra(extra))


def _collective(fields: dict[str, Any]) -> Collective | None:
    name = fields.get("collective")
    if not isinstance(name, str):
        return None

    def number(key: str) -> int | None:
        value = fields.get(key)
        return value if isinstance(value, int) and 0 <= value <= LARGEST_TENSOR_ELEMENTS else None

    dtype = fields.get("dtype")
    return Collective(
        name=name,
        dtype=(dtype_name(dtype) or None) if isinstance(dtype, str) else None,
        in_elements=number("in_elements"),
        out_elements=number("out_elements"),
        group_size=number("group_size"),
    )


def _shared_floors(
    events: EventTable, links: Links, groups: list[CallGroup], order: I8, starts: I8, group: I8
) -> NDArray[np.float64]:
    """Each call's floor, divided among its kernels in proportion to their durations."""
    result = np.full(len(order), np.nan)
    if not len(order):
        return result
    duration = events.duration_ns[links.device[order]].astype(np.float64)
    total = np.add.reduceat(duration, starts)
    counts = np.diff(np.append(starts, len(order)))
    of_group = np.array([kind.floor.ns if kind.floor else np.nan for kind in groups])
    spread = np.repeat(total, counts)
    share = np.where(spread > 0, duration / np.maximum(spread, 1), 1.0 / np.repeat(counts, counts))
    result[order] = np.repeat(of_group[group], counts) * share
    return result
