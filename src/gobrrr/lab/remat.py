"""Experiment 8: a fused pointwise chain's backward pass that reads what was stored, or computes it again.

The chain is x -> x * x / 2 + 0.1, DEPTH times; its derivative is x, so the backward pass needs every x in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gobrrr.lab import article
from gobrrr.lab.judge import interval, judged, ratio, within
from gobrrr.lab.session import Lab
from gobrrr.lab.tables import columns
from gobrrr.model.experiment import Experiment, Judgement, LabTable
from gobrrr.model.measured import Quantity

DEPTH = 4
"""Each link reads its input twice, and a compiler that inlines them all writes 2^DEPTH of them."""
STORED_ACCESSES = 2 * DEPTH + 3
"""Forward: one read, DEPTH writes. Backward: the gradient and DEPTH tensors read, one written."""
RECOMPUTED_ACCESSES = 5
"""Forward: one read, one write. Backward: the gradient and x read, one written."""
COMPILE_S = 6.0

Made = tuple[Callable[[], object], int]
"""A call, and the bytes of the tensors that it needs to exist at once."""


@dataclass(frozen=True)
class Way:
    """One way through forward and backward; `peak_bytes` as measured on a GPU, as its tensors sum on a CPU."""

    name: str
    accesses: int | None
    time_s: Quantity
    peak_bytes: float


def run(lab: Lab) -> Experiment:
    """Both fused ways and plain autograd; the compiler's own choice where time is left."""
    ways = [
        _way(lab, "stored, fused", STORED_ACCESSES, _stored),
        _way(lab, "recomputed, fused", RECOMPUTED_ACCESSES, _recomputed),
        _way(lab, "autograd, eager", None, _autograd),
    ]
    if lab.left_s > COMPILE_S:
        ways.append(_way(lab, "autograd, torch.compile", None, _compiled))
    elements = _input(lab).numel()
    return result(ways, lab.cpu, lab.settings(depth=DEPTH, elements=elements, dtype="float32"))


def _input(lab: Lab) -> Any:
    return lab.torch.rand(lab.sized(cpu=2**22, gpu=2**26), device=lab.device.spec)


def _way(lab: Lab, name: str, accesses: int | None, make: Callable[[Lab], Made]) -> Way:
    cuda = None if lab.cpu else lab.torch.cuda
    if cuda is not None:
        cuda.empty_cache()
        before = cuda.memory_allocated(lab.device.index)
    call, needed = make(lab)
    call()  # a compiler may try several kernels at the first call, on memory of its own
    lab.device.wait()
    if cuda is not None:
        cuda.reset_peak_memory_stats(lab.device.index)
    call()
    lab.device.wait()
    peak = float(needed) if cuda is None else float(cuda.max_memory_allocated(lab.device.index) - before)
    return Way(name, accesses, lab.time(call), peak)


def link(x: Any) -> Any:
    """One step of the chain."""
    return x * x * 0.5 + 0.1


def _stored(lab: Lab) -> Made:
    torch, x = lab.torch, _input(lab)
    kept = [torch.empty_like(x).fill_(0.5) for _ in range(DEPTH)]
    grad, out = torch.ones_like(x), torch.empty_like(x).fill_(0.5)

    def forward(x: Any, kept: list[Any]) -> None:
        for at in range(DEPTH):
            x = link(x)
            kept[at].copy_(x)

    def backward(grad: Any, needed: list[Any], out: Any) -> None:
        for one in reversed(needed):
            grad = grad * one
        out.copy_(grad)

    needed = [x, *kept[:-1]]
    ahead, back = lab.fused(forward, x, kept), lab.fused(backward, grad, needed, out)

    def both() -> None:
        ahead(x, kept)
        back(grad, needed, out)

    return both, (DEPTH + 3) * x.nbytes


def _recomputed(lab: Lab) -> Made:
    torch, x = lab.torch, _input(lab)
    result_, grad, out = torch.empty_like(x).fill_(0.5), torch.ones_like(x), torch.empty_like(x).fill_(0.5)

    def forward(x: Any, out: Any) -> None:
        for _ in range(DEPTH):
            x = link(x)
        out.copy_(x)

    def backward(grad: Any, x: Any, out: Any) -> None:
        needed = [x]
        for _ in range(DEPTH - 1):
            needed.append(link(needed[-1]))
        for one in reversed(needed):
            grad = grad * one
        out.copy_(grad)

    ahead, back = lab.fused(forward, x, result_), lab.fused(backward, grad, x, out)

    def both() -> None:
        ahead(x, result_)
        back(grad, x, out)

    return both, 4 * x.nbytes


def _chain(x: Any) -> Any:
    for _ in range(DEPTH):
        x = link(x)
    return x


def _autograd(lab: Lab) -> Made:
    return _backward(lab, _chain)


def _compiled(lab: Lab) -> Made:
    example = _input(lab).requires_grad_()
    return _backward(lab, lab.fused(_chain, example))


def _backward(lab: Lab, function: Callable[[Any], Any]) -> Made:
    x = _input(lab).requires_grad_()
    grad = lab.torch.ones_like(x)
    saved: dict[int, int] = {}

    def note(tensor: Any) -> Any:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    def both() -> None:
        x.grad = None
        function(x).backward(grad)

    with lab.torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        both()
    saved.pop(x.untyped_storage().data_ptr(), None)
    # x, the gradient in, the gradient out, the result; and what was saved besides x
    return both, 4 * x.nbytes + sum(saved.values())


def result(ways: Sequence[Way], cpu: bool, settings: dict[str, str]) -> Experiment:
    """The record of the ways: pure."""
    note = (
        "memory is what the tensors sum to: a CPU's allocator keeps no peak"
        if cpu
        else "memory is the allocator's peak"
    )
    return Experiment(
        name="remat",
        title="Recomputing against storing in the backward pass",
        tables=(_table(ways),),
        judgements=_judgements(ways),
        notes=(note,),
        settings=settings,
    )


def _table(ways: Sequence[Way]) -> LabTable:
    heads = columns("", "accesses", "time [s]", "peak [B]")
    rows = tuple(
        (way.name, None if way.accesses is None else float(way.accesses), way.time_s, way.peak_bytes) for way in ways
    )
    return LabTable(
        title="Forward and backward of the chain (accesses an element, as predicted)", columns=heads, rows=rows
    )


def _judgements(ways: Sequence[Way]) -> tuple[Judgement, ...]:
    found = {way.name: way for way in ways}
    stored, again = found["stored, fused"], found["recomputed, fused"]
    faster = ratio(again.time_s, stored.time_s)
    smaller = again.peak_bytes / stored.peak_bytes
    predicted = RECOMPUTED_ACCESSES / STORED_ACCESSES
    here = f"recomputing takes {interval(faster)} of the time ({predicted:.2f} predicted)"
    time = within(faster, 0.0, 0.95)
    both = time if smaller < 0.95 else "does not hold"
    return (
        judged(article.REMAT_TIME, time, here, "recomputing takes at most 95 % of the time"),
        judged(article.REMAT_BOTH, both, f"{here} and {smaller:.2f} of the memory", "at most 95 % of each"),
    )
