"""Collectives, by ring arithmetic: what one rank sends, and receives as much, with n ranks and S bytes.

    all-reduce 2 (n - 1) / n S    all-gather, reduce-scatter, all-to-all (n - 1) / n S of the larger side
    broadcast, reduce, send, receive S

`bytes_written` is what the rank sends and `bytes_read` what it receives: each is NCCL's "bus bytes".
"""

from __future__ import annotations

from typing import NamedTuple

from gobrrr.cost.arguments import integer, tensors
from gobrrr.cost.kernels import element_type
from gobrrr.cost.registry import Uncounted, rule
from gobrrr.cost.shapes import item_bytes, numel
from gobrrr.model.work import Collective, OpCall, Work

# The order matters: "reducescatter" before "reduce", "allgather" before "gather".
_KINDS: tuple[tuple[str, str], ...] = (
    ("allreduce", "all_reduce"), ("reducescatter", "reduce_scatter"), ("allgather", "all_gather"),
    ("alltoall", "all_to_all"), ("broadcast", "broadcast"), ("sendrecv", "send_recv"), ("send", "send"),
    ("recv", "receive"), ("scatter", "scatter"), ("gather", "gather"), ("reduce", "reduce"), ("barrier", "barrier"),
)  # fmt: skip
_SHARED = ("all_gather", "reduce_scatter", "all_to_all", "scatter", "gather")
"""Collectives in which each rank keeps its own share of S: (n - 1) / n of it moves."""


class Size(NamedTuple):
    """S of the formulas, and how it was known."""

    bytes: float
    by_name: bool


def kind_of(name: str) -> str:
    """The collective in an op's or a kernel's name; "" when there is none."""
    letters = name.lower().replace("_", "").replace(" ", "").replace("-", "")
    return next((kind for spelling, kind in _KINDS if spelling in letters), "")


def bus_factor(kind: str, ranks: int) -> float:
    """Bytes that a rank sends for a byte of S, with `ranks` ranks."""
    if ranks <= 1:
        return 0.0
    share = (ranks - 1) / ranks
    if kind == "all_reduce":
        return 2 * share
    return share if kind in _SHARED else 1.0


@rule("record_param_comms", "nccl*", "rccl*", "c10d::*", "gloo:*", "xccl*", "hccl*", family="collective")
@rule("symm_mem::multimem_all_reduce_", "_c10d_functional::*", "vllm::all_reduce", family="collective")
def _collective(call: OpCall) -> Work:
    record = call.collective
    kind, by_name = _kind(call, record)
    if not kind:
        raise Uncounted("which collective it is is not recorded")
    size = _size(call, record, kind)
    ranks = record.group_size if record is not None and record.group_size else _world(call)
    # Without the group's size: two ranks, which send the least.
    factor = bus_factor(kind, ranks if ranks is not None else 2)
    sent = size.bytes * factor
    return Work(
        count="exact" if ranks is not None else "bounded",
        bytes_read=0.0 if kind == "send" else sent,
        bytes_written=0.0 if kind == "receive" else sent,
        link="network",
        by_name=by_name or size.by_name,
        note="" if ranks is not None else "the group's size is not recorded: taken as 2, the least traffic",
    )


def _kind(call: OpCall, record: Collective | None) -> tuple[str, bool]:
    for name in (record.name if record is not None else "", call.name):
        if kind_of(name):
            return kind_of(name), False
    return next((kind for kind in map(kind_of, call.kernels) if kind), ""), True


def _size(call: OpCall, record: Collective | None, kind: str) -> Size:
    if record is not None:
        counts = [count for count in (record.in_elements, record.out_elements) if count is not None and count >= 0]
        if counts and record.dtype:
            return Size(max(counts) * item_bytes(record.dtype), False)
    elements = sum(numel(tensor.shape) for tensor in tensors(call))
    if not elements:
        raise Uncounted("the collective's size is not recorded")
    known = next((tensor.dtype for tensor in tensors(call) if tensor.dtype), "")
    each = item_bytes(known or element_type(call.kernels))
    ranks = _world(call)
    # The inputs are recorded: what an all-gather makes of them is that many times as large.
    scale = ranks if kind == "all_gather" and ranks else 1
    return Size(elements * each * scale, not known)


def _world(call: OpCall) -> int | None:
    """record_param_comms ends with the group's first rank, its stride and its size."""
    if call.name != "record_param_comms" or len(call.inputs) < 10:
        return None
    size = integer(call, 9)
    return size if size is not None and size > 0 else None
