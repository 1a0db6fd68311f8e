"""Products that autocast runs in 16 bits: which they are, and how much longer they would take in float32."""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.effects import between, works_of
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Effect
from gobrrr.analysis.what_if import Change, scaled
from gobrrr.model.events import I8

PRODUCTS = ("matmul", "convolution", "attention")
HALVES = ("bfloat16", "float16")
TWICE = 2.0
"""A product in float32 reads and writes twice the bytes of one in 16 bits."""


def autocast_to(evidence: Evidence) -> str | None:
    """The type that a live run saw autocast use; None where it was off, or nobody looked."""
    switches = evidence.live.switches if evidence.live is not None else None
    return switches.autocast if switches is not None else None


def worth_leaving_out(evidence: Evidence, conversions_ns: float) -> bool:
    """Whether conversions cost more (ns of all steps) than float32 is expected to cost the products."""
    longer = float(evidence.calls.ns[_halved(evidence)].sum()) * (_slower(evidence) - 1.0) / 2
    return autocast_to(evidence) is not None and conversions_ns > longer


def in_float32(evidence: Evidence) -> Effect:
    """Products in 16 bits run in float32: at the most as long as now, at the least as the peaks of the types say."""
    products = _halved(evidence)
    work = works_of(evidence, products)[0] if len(products) else products
    slower = _slower(evidence)

    def effect(share: float) -> Change:
        factor = np.full(len(work), float(between(slower, 1.0, share)))
        return lambda graph: scaled(graph, work, factor)

    return effect


def _halved(evidence: Evidence) -> I8:
    of = evidence.groups_where(*PRODUCTS)
    half = [any(one.dtype in HALVES for one in group.call.tensors) for group in evidence.priced.groups]
    return evidence.calls_where(of & np.array(half, dtype=bool))


def _slower(evidence: Evidence) -> float:
    """How many times as long a product takes in float32, by the peaks of the machine's matrix units."""
    peaks = evidence.machine.matrix_flop_per_s if evidence.machine is not None else {}
    half, full = peaks.get(autocast_to(evidence) or ""), peaks.get("float32")
    return max(half.value / full.value, TWICE) if half is not None and full is not None and full.value > 0 else TWICE
