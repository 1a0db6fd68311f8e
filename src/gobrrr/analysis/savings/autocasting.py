"""Products in 16 bits: which calls they are, and how long they would take in float32."""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.findings.claims import F8
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.analysis.pricing.roofline import floor
from gobrrr.analysis.replay.what_if import Change, scaled
from gobrrr.analysis.savings.effects import between, works_of
from gobrrr.analysis.savings.gains import Effect
from gobrrr.cost import price
from gobrrr.model.events import I8
from gobrrr.model.machine import Machine

PRODUCT_FAMILIES = ("matmul", "convolution", "attention")
"""Families of operations that multiply."""

WIDER = {"bfloat16": "float32", "float16": "float32"}
"""The types of 16 bits, and the type that a product has without autocast."""

FLOAT32_TIMES = 2.0
"""How many times as long a product takes in float32 where the peaks are not known: it moves twice the bytes."""

REACHED_IN_FLOAT32 = 0.5
"""The share of the roof that a product in float32 is assumed to reach. Below it, the time does not depend on the type:
small products consist of fixed cost. Large products reach more."""


def autocast_to(evidence: Evidence) -> str | None:
    """The type that autocast used in a live run; None where autocast was off, or in a trace."""
    switches = evidence.profile.switches
    return switches.autocast if switches is not None else None


def worth_leaving_out(evidence: Evidence, conversions_ns: float) -> bool:
    """Whether the conversions (ns of all steps) cost more than the products are expected to cost in float32."""
    if autocast_to(evidence) is None:
        return False
    products = halved(evidence)
    return conversions_ns > float((_longer(evidence, products) - sooner(evidence, products)[0]).sum()) / 2


def longer_in_float32(evidence: Evidence) -> Effect:
    """Products in 16 bits run in float32, where that is the slower type: at best as fast as now, at worst `_longer`."""
    products = halved(evidence)
    if not len(products):
        return lambda _: lambda graph: graph
    work, place = works_of(evidence, products)
    slowest = 1.0 + _longer(evidence, products) / np.maximum(evidence.calls.ns[products], 1.0)

    def effect(share: float) -> Change:
        factor = between(slowest, 1.0, share)[place]
        return lambda graph: scaled(graph, work, factor)

    return effect


def halved(evidence: Evidence) -> I8:
    """Products of tensors in 16 bits."""
    return evidence.calls_that(
        lambda group: (
            group.work.family in PRODUCT_FAMILIES and any(tensor.dtype in WIDER for tensor in group.call.tensors)
        )
    )


def sooner(evidence: Evidence, products: I8) -> tuple[F8, F8]:
    """(low, high): by how many ns each product is faster in float32.

    0 where the machine's peak in float32 is lower than in 16 bits, or a peak is not known. Else the product takes at
    least its floor in float32, and at most the time at `REACHED_IN_FLOAT32` of the roof plus the time of an operation
    on one element.
    """
    group = evidence.calls.group[products]
    floors = {at: _wider_floor(evidence.priced.groups[at], evidence.machine) for at in np.unique(group).tolist()}
    floor_ns = np.array([floors[at] for at in group.tolist()], dtype=np.float64)
    fixed = evidence.profile.dispatch_ns or 0.0
    ns = evidence.calls.ns[products]
    return np.maximum(ns - floor_ns / REACHED_IN_FLOAT32 - fixed, 0.0), np.maximum(ns - floor_ns, 0.0)


def known_from_below(evidence: Evidence, products: I8) -> bool:
    """Whether the machine's measured peak in the 16 bits of some products is a lower bound only."""
    peaks = evidence.machine.matrix_flop_per_s if evidence.machine is not None else {}
    groups = np.unique(evidence.calls.group[products]).tolist()
    return any(peaks[_half(evidence.priced.groups[at])].at_least for at in groups)


def _half(group: CallGroup) -> str:
    """The type of a product's first tensor in 16 bits."""
    return next(tensor.dtype for tensor in group.call.tensors if tensor.dtype in WIDER)


def _wider_floor(group: CallGroup, machine: Machine | None) -> float:
    """The floor of a product in float32; infinite where it is not known, or 16 bits are the faster type."""
    wide, ratio = floor(price(group.call.retyped(WIDER)), machine), _ratio(machine, _half(group))
    return wide.ns if wide is not None and ratio is not None and ratio < 1.0 else np.inf


def _longer(evidence: Evidence, products: I8) -> F8:
    """By how many ns each product is slower in float32, from the peaks of both types and the part at its roof."""
    ratio = _ratio(evidence.machine, autocast_to(evidence) or "")
    floors = np.nan_to_num(evidence.calls.floor_ns[products], nan=np.inf)
    longer: F8 = np.minimum(evidence.calls.ns[products], floors / REACHED_IN_FLOAT32)
    return max((FLOAT32_TIMES if ratio is None else ratio) - 1.0, 0.0) * longer


def _ratio(machine: Machine | None, half: str) -> float | None:
    """How many times as long a product takes in float32, by the peaks of the machine's matrix units."""
    peaks = machine.matrix_flop_per_s if machine is not None else {}
    narrow, wide = peaks.get(half), peaks.get("float32")
    return narrow.value / wide.value if narrow is not None and wide is not None and wide.value > 0 else None
