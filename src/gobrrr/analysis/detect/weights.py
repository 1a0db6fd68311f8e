"""Conversions of parameters from one element type to another: which calls they are."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.detect.copies import casts, dequantisations, weight_casts
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.fusion import tensors
from gobrrr.model.events import I8
from gobrrr.model.live import TensorUse

CONVERSION = re.compile(r"\[(?P<shape>[\d, ]*)\] (?P<source>\w+) -> (?P<target>\w+)")
"""How a TensorUse of kind "weight_cast" says what was converted."""

BEHIND = 4
"""Calls behind a conversion among which a norm takes the converted weight: those of its bias, and a reduction."""

Cast = tuple[tuple[int, ...], str, str]


@dataclass(frozen=True)
class Conversions:
    """Calls that convert parameters; `spared`: the share of each that need not be. `seen`: and not inferred."""

    calls: I8
    spared: NDArray[np.float64]
    seen: bool


def repeated_casts(evidence: Evidence) -> Conversions:
    """Conversions of parameters that need not be in every step, by a live run, or else by what follows them."""
    found = casts(evidence)
    uses = evidence.profile.uses
    if uses is not None:
        found = np.union1d(found, dequantisations(evidence))
        return _seen(evidence, found, [use for use in uses if use.kind == "weight_cast" and use.share])
    if evidence.training:
        return Conversions(found[:0], np.empty(0), False)
    mine = found[weight_casts(evidence, found) | _of_norms(evidence, found)]
    return Conversions(mine, np.ones(len(mine)), False)


def _seen(evidence: Evidence, found: I8, uses: list[TensorUse]) -> Conversions:
    """The calls with the shapes and types of the conversions that were seen; no more of them than were seen."""
    spared: dict[Cast, float] = {}
    for use in uses:
        for one in _listed(use.shapes):
            spared[one] = max(spared.get(one, 0.0), use.share or 0.0)
    unlisted = max((one.share or 0.0 for one in uses if "more shapes" in one.shapes), default=0.0)
    around = weight_casts(evidence, found) if unlisted else np.zeros(len(found), dtype=bool)
    share = np.array([spared.get(_cast(evidence, call), 0.0) for call in found.tolist()])
    share = np.where((share == 0) & around, unlisted, share)
    mine, share = found[share > 0], share[share > 0]
    total = sum(one.total or one.count for one in uses)
    if len(mine):
        share = share * min(1.0, total * evidence.steps.count / len(mine))
    return Conversions(mine, share, True)


def _listed(text: str) -> list[Cast]:
    """The conversions in a text like "12 x [768] float32 -> bfloat16, [768, 768] float32 -> bfloat16"."""
    return [
        (tuple(int(size) for size in match["shape"].split(",") if size.strip()), match["source"], match["target"])
        for match in CONVERSION.finditer(text)
    ]


def _cast(evidence: Evidence, call: int) -> Cast:
    target, source = tensors(evidence.group_of(call).call)[:2]
    return target.shape, source.dtype, target.dtype


def _of_norms(evidence: Evidence, found: I8) -> NDArray[np.bool_]:
    """One flag a conversion: whether it is of one row, and a call right behind it takes that row beside a matrix."""
    return np.array([_taken_by_norm(evidence, call) for call in found.tolist()], dtype=bool)


def _taken_by_norm(evidence: Evidence, call: int) -> bool:
    shape, _, dtype = _cast(evidence, call)
    if len(shape) != 1:
        return False
    for at in range(call + 1, min(call + 1 + BEHIND, len(evidence.calls))):
        given = tensors(evidence.group_of(at).call)
        takes = any(tensor.shape == shape and tensor.dtype == dtype for tensor in given[1:])
        if takes and any(tensor.shape[-1:] == shape and len(tensor.shape) > 1 for tensor in given):
            return True
    return False
