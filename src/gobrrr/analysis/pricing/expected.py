"""How long a call should take on another machine: from the ceilings there, and the shares that such calls reach.

The time is never below the floor. The spread of the stored shares gives its interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from gobrrr.analysis.pricing.price import crossing
from gobrrr.analysis.pricing.roofline import floor, matrix_peak, vector_type
from gobrrr.analysis.pricing.tally import FREE_COUNTS
from gobrrr.analysis.pricing.tiles import padded_flop
from gobrrr.cost import price
from gobrrr.hardware.efficiency import Efficiency, Share, ShareKey, canonical
from gobrrr.hardware.variants import copied, hidden_copy, repeats, variant
from gobrrr.model.machine import Ceiling, Machine
from gobrrr.model.work import DTYPE_BYTES, OpCall, Tensor, Work


@dataclass(frozen=True)
class Expected:
    """The time of one call in ns, and its pieces of device work. `spread`: the standard deviation of the logarithm.

    `kind`: the key of the stored share; errors of one kind are correlated. `guessed`: the work is unknown, and the time
    is the least possible: that of moving inputs and outputs once.
    """

    ns: float
    kernels: int
    spread: float
    kind: str
    guessed: bool = False


NO_WORK_TIME = Expected(0.0, 0, 0.0, "")
"""The time of a call without device work."""

COPY_NS = 7_658.0
"""The time of a copy between host and device beyond that of its bytes: a copy of a few bytes from pinned memory,
measured on the H100's host (bench/results/h100_ops.json, copy_to_device_pinned)."""
COPY_SPREAD = 0.5
"""The spread of a copy's time. Whether memory is pinned is not recorded, and that changes the time by more than this.
Chosen, not measured."""


class TimeParts(NamedTuple):
    """The parts of a call's time at full ceilings: ns of matrix work in whole tiles, of vector work, and of bytes.

    `inside`: 1 where the bytes fit half of the last-level cache, 0 where they do not fit the whole cache. `repeats`:
    consecutive steps of a recurrence, each with the fixed part.
    """

    matrix_ns: float
    vector_ns: float
    memory_ns: float
    inside: float
    repeats: int = 1

    def time(self, share: Share) -> float:
        """The time in ns, at the shares of the ceilings that such calls reach."""
        reached = share.memory + (share.cached - share.memory) * self.inside
        arithmetic = max(self.matrix_ns, self.vector_ns) / share.compute
        return share.fixed_ns * self.repeats + max(arithmetic, self.memory_ns / reached)


def expect(call: OpCall, work: Work, machine: Machine, table: Efficiency) -> Expected:
    """The time of `call` on `machine`. `work`: the result of `price`."""
    if work.count in FREE_COUNTS:
        return NO_WORK_TIME
    guessed = not work.known or work.bytes is None
    key, share = table.share(kind_of(call, work))
    plain, beside = _apart(call, work)
    parts = parts_of(call, plain, machine, table)
    least = floor(work, machine)
    ns = max(
        parts.time(share) + _hidden_ns(call, machine, table) + _fill_ns(beside, machine, table),
        table.least_ns,
        least.least_ns if least is not None else 0.0,
    )
    return Expected(ns, max(round(share.kernels * parts.repeats), 1), share.spread, key, guessed)


def expect_copy(call: OpCall, direction: str, machine: Machine) -> Expected:
    """The time of a copy between host and device."""
    work = crossing(call, direction)
    link = machine.host_bytes_per_s
    moved = (work.bytes or 0.0) / link.value * 1e9 if link is not None else 0.0
    return Expected(COPY_NS + moved, 1, COPY_SPREAD, "host copy", guessed=link is None)


def _apart(call: OpCall, work: Work) -> tuple[Work, float]:
    """(the work of the operation's main kernel, bytes that it fills or copies besides).

    A recorder sees a whole operation, a trace its parts; the stored shares are for the parts.
    """
    if call.outputs is None or not work.known or work.bytes is None:
        return work, 0.0
    kernel = price(msgspec.structs.replace(call, outputs=None))
    if not kernel.known or kernel.bytes is None or kernel.bytes >= work.bytes:
        return work, 0.0
    return kernel, work.bytes - kernel.bytes


def _fill_ns(bytes_: float, machine: Machine, table: Efficiency) -> float:
    """The time to fill so many bytes with zeros."""
    if bytes_ <= 0:
        return 0.0
    work = Work(count="exact", vector_flop=0.0, bytes_read=0.0, bytes_written=bytes_, family="movement")
    return parts_of(_FILL, work, machine, table).time(table.share(kind_of(_FILL, work))[1])


_FILL = OpCall(name="aten::fill_", inputs=(Tensor((1,), "float32"),))
"""The operation that fills a tensor."""


def _hidden_ns(call: OpCall, machine: Machine, table: Efficiency) -> float:
    """The time of the copy to row-major order that some kernels make of an operand; it is no operation of its own."""
    turned = hidden_copy(canonical(call.name), call)
    if turned is None:
        return 0.0
    rows = Tensor(turned.shape, turned.dtype, contiguous(turned.shape))
    own = OpCall(name="aten::copy_", inputs=(rows, turned))
    moved = 2.0 * _bytes(turned)
    work = Work(count="exact", vector_flop=0.0, bytes_read=moved / 2, bytes_written=moved / 2, family="movement")
    return parts_of(own, work, machine, table).time(table.share(kind_of(own, work))[1])


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(step)
        step *= max(size, 1)
    return tuple(reversed(steps))


def parts_of(call: OpCall, work: Work, machine: Machine, table: Efficiency | None = None) -> TimeParts:
    """The parts of a call's time. A measured ceiling is converted to the datasheet's by the table's ratio of both."""
    matrix = vector = 0.0
    if work.matrix_flop:
        peak, _ = matrix_peak(machine, work.matrix_dtype)
        if peak is not None:
            flop = padded_flop(call, work, machine.processors)
            matrix = flop / _datasheet(peak, table, _ceiling_key(work)) * 1e9
    if work.vector_flop:
        peak = machine.vector_flop_per_s.get(vector_type(work))
        vector = work.vector_flop / peak.value * 1e9 if peak is not None else 0.0
    known = work.known and work.bytes is not None
    bytes_ = (work.bytes or 0.0) if known else _touched(call)
    ceiling = machine.memory_bytes_per_s
    memory = bytes_ / _datasheet(ceiling, table, "memory") * 1e9 if ceiling is not None else 0.0
    return TimeParts(matrix, vector, memory, _inside(bytes_, machine), repeats(canonical(call.name), call))


def kind_of(call: OpCall, work: Work) -> ShareKey:
    """The key of a call's stored share."""
    op = canonical(call.name)
    dtype = work.matrix_dtype or (copied(call) if op == "copy" else "") or _dtype(call)
    return ShareKey(op, variant(op, work.family, call), work.family, dtype)


def _datasheet(ceiling: Ceiling, table: Efficiency | None, key: str) -> float:
    if ceiling.provenance != "measured" or table is None:
        return ceiling.value
    return ceiling.value / table.measured_over_datasheet.get(key, 1.0)


def _ceiling_key(work: Work) -> str:
    dtype = work.matrix_dtype or ""
    return "float8" if dtype.startswith("float8") else dtype


def _inside(bytes_: float, machine: Machine) -> float:
    size = machine.cache_bytes.value if machine.cache_bytes is not None else 0.0
    return min(max(2.0 * (size - bytes_) / size, 0.0), 1.0) if size > 0 else 0.0


def _touched(call: OpCall) -> float:
    """Bytes of all inputs and outputs of a call."""
    return float(sum(_bytes(tensor) for tensor in (*call.tensors, *(call.outputs or ()))))


def _bytes(tensor: Tensor) -> float:
    return math.prod(tensor.shape) * DTYPE_BYTES.get(tensor.dtype, 4)


def _dtype(call: OpCall) -> str:
    return next((tensor.dtype for tensor in call.tensors if tensor.dtype), "")
