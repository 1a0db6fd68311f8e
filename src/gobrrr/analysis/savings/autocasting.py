"""Products in 16 bits: which they are, and what they would take in float32."""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.findings.claims import F8
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import Group
from gobrrr.analysis.pricing.roofline import floor
from gobrrr.analysis.replay.what_if import Change, scaled
from gobrrr.analysis.savings.effects import between, works_of
from gobrrr.analysis.savings.gains import Effect
from gobrrr.cost import price
from gobrrr.model.events import I8
from gobrrr.model.machine import Machine

PRODUCTS = ("matmul", "convolution", "attention")
WIDER = {"bfloat16": "float32", "float16": "float32"}
TWICE = 2.0
"""Where the peaks are not known: a product in float32 reads and writes twice the bytes of one in 16 bits."""

AT_ITS_FLOOR = 0.5
"""The share of the roof that a product in float32 is asked to reach: less than that, and its time is no matter of the
type (small products are all fixed cost, and take as long in either). An assumption, as large products reach more."""


def autocast_to(evidence: Evidence) -> str | None:
    """The type that a live run saw autocast use; None where it was off, or nobody looked."""
    switches = evidence.profile.switches
    return switches.autocast if switches is not None else None


def worth_leaving_out(evidence: Evidence, conversions_ns: float) -> bool:
    """Whether conversions cost more (ns of all steps) than float32 is expected to cost the products."""
    if autocast_to(evidence) is None:
        return False
    products = halved(evidence)
    return conversions_ns > float((_longer(evidence, products) - sooner(evidence, products)[0]).sum()) / 2


def longer_in_float32(evidence: Evidence) -> Effect:
    """Products in 16 bits run in float32, where that is the slower type: as long as now at the most, `_longer` at the
    least."""
    products = halved(evidence)
    if not len(products):
        return lambda _: lambda graph: graph
    work, place = works_of(evidence, products)
    most = 1.0 + _longer(evidence, products) / np.maximum(evidence.calls.ns[products], 1.0)

    def effect(share: float) -> Change:
        factor = between(most, 1.0, share)[place]
        return lambda graph: scaled(graph, work, factor)

    return effect


def halved(evidence: Evidence) -> I8:
    """Products of tensors in 16 bits."""
    of = evidence.groups_where(*PRODUCTS)
    half = [any(tensor.dtype in WIDER for tensor in group.call.tensors) for group in evidence.priced.groups]
    return evidence.calls_where(of & np.array(half, dtype=bool))


def sooner(evidence: Evidence, products: I8) -> tuple[F8, F8]:
    """By how many ns each product ends sooner in float32, at the least and at the most.

    None does where the machine's peak in float32 is the lower one, or a peak is not known. Else it takes its floor in
    float32 at the least, and at the most that with `AT_ITS_FLOOR` of the roof and what an operation on one element
    takes on top.
    """
    floors: dict[int, float] = {}
    for at in np.unique(evidence.calls.group[products]).tolist():
        floors[at] = _wider_floor(evidence.priced.groups[at], evidence.machine)
    then = np.array([floors[at] for at in evidence.calls.group[products].tolist()], dtype=np.float64)
    fixed = evidence.profile.dispatch_ns or 0.0
    ns = evidence.calls.ns[products]
    return np.maximum(ns - then / AT_ITS_FLOOR - fixed, 0.0), np.maximum(ns - then, 0.0)


def known_from_below(evidence: Evidence, products: I8) -> bool:
    """Whether the machine may be faster in the 16 bits of some products than it was measured to be."""
    peaks = evidence.machine.matrix_flop_per_s if evidence.machine is not None else {}
    groups = np.unique(evidence.calls.group[products]).tolist()
    return any(peaks[_half(evidence.priced.groups[at])].at_least for at in groups)


def _half(group: Group) -> str:
    """The type of a product's first tensor in 16 bits."""
    return next(tensor.dtype for tensor in group.call.tensors if tensor.dtype in WIDER)


def _wider_floor(group: Group, machine: Machine | None) -> float:
    """The floor of a product in float32; infinite where that is not known, or 16 bits are the faster type."""
    then, ratio = floor(price(group.call.retyped(WIDER)), machine), _ratio(machine, _half(group))
    return then.ns if then is not None and ratio is not None and ratio < 1.0 else np.inf


def _longer(evidence: Evidence, products: I8) -> F8:
    """By how many ns each product takes longer in float32 by the peaks of the two types, if it is at its floor."""
    ratio = _ratio(evidence.machine, autocast_to(evidence) or "")
    floors = np.nan_to_num(evidence.calls.floor_ns[products], nan=np.inf)
    longer: F8 = np.minimum(evidence.calls.ns[products], floors / AT_ITS_FLOOR)
    return max((TWICE if ratio is None else ratio) - 1.0, 0.0) * longer


def _ratio(machine: Machine | None, half: str) -> float | None:
    """How many times as long a product takes in float32, by the peaks of the machine's matrix units."""
    peaks = machine.matrix_flop_per_s if machine is not None else {}
    narrow, wide = peaks.get(half), peaks.get("float32")
    return narrow.value / wide.value if narrow is not None and wide is not None and wide.value > 0 else None
