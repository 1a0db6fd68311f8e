"""Products that autocast runs in 16 bits: which they are, and how much longer they would take in float32."""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.claims import F8
from gobrrr.analysis.effects import works_of
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Effect
from gobrrr.analysis.what_if import Change, scaled
from gobrrr.model.events import I8

PRODUCTS = ("matmul", "convolution", "attention")
HALVES = ("bfloat16", "float16")
TWICE = 2.0
"""Where the peaks are not known: a product in float32 reads and writes twice the bytes of one in 16 bits."""

AT_ITS_FLOOR = 0.5
"""The share of the roof that a product in float32 is asked to reach: less than that, and its time is no matter of the
type (small products are all fixed cost, and take as long in either). An assumption, as large products reach more."""


def autocast_to(evidence: Evidence) -> str | None:
    """The type that a live run saw autocast use; None where it was off, or nobody looked."""
    switches = evidence.live.switches if evidence.live is not None else None
    return switches.autocast if switches is not None else None


def worth_leaving_out(evidence: Evidence, conversions_ns: float) -> bool:
    """Whether conversions cost more (ns of all steps) than float32 is expected to cost the products."""
    if autocast_to(evidence) is None:
        return False
    longer, shorter = _in_float32(evidence, _halved(evidence))
    return conversions_ns > float(longer.sum() + shorter.sum()) / 2


def in_float32(evidence: Evidence) -> Effect:
    """Products in 16 bits run in float32, between the two times that `_in_float32` says."""
    products = _halved(evidence)
    if not len(products):
        return lambda _: lambda graph: graph
    work, place = works_of(evidence, products)
    ns = np.maximum(evidence.calls.ns[products], 1.0)
    least, most = (1.0 + one / ns for one in _in_float32(evidence, products))

    def effect(share: float) -> Change:
        factor = (least + share * (most - least))[place]
        return lambda graph: scaled(graph, work, factor)

    return effect


def _in_float32(evidence: Evidence, products: I8) -> tuple[F8, F8]:
    """By how many ns each product takes longer in float32 (shorter: below 0): at the most, at the least.

    By the peaks of the two types, where it is at its floor at all. Where 16 bits are the slower type, as on a processor
    without units for them, it takes as long at the most, and at the least as much less as the peaks say.
    """
    ns, ratio = evidence.calls.ns[products], _slower(evidence)
    floor = np.nan_to_num(evidence.calls.floor_ns[products], nan=np.inf)
    return max(ratio - 1.0, 0.0) * np.minimum(ns, floor / AT_ITS_FLOOR), min(ratio - 1.0, 0.0) * ns


def _halved(evidence: Evidence) -> I8:
    of = evidence.groups_where(*PRODUCTS)
    half = [any(one.dtype in HALVES for one in group.call.tensors) for group in evidence.priced.groups]
    return evidence.calls_where(of & np.array(half, dtype=bool))


def _slower(evidence: Evidence) -> float:
    """How many times as long a product takes in float32, by the peaks of the machine's matrix units."""
    peaks = evidence.machine.matrix_flop_per_s if evidence.machine is not None else {}
    half, full = peaks.get(autocast_to(evidence) or ""), peaks.get("float32")
    return half.value / full.value if half is not None and full is not None and full.value > 0 else TWICE
