"""Conversions of parameters from one element type to another."""

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
"""A conversion in the text of a TensorUse of kind "weight_cast"."""

CALLS_TO_NORM = 4
"""How many calls after a conversion may come before the norm that takes the weight: the bias's, and a reduction."""

Cast = tuple[tuple[int, ...], str, str]
"""(shape, type before, type after) of a conversion."""


@dataclass(frozen=True)
class Conversions:
    """Calls that convert parameters. `spared`: the share of each that is unnecessary; `seen`: a live run saw them."""

    calls: I8
    spared: NDArray[np.float64]
    seen: bool


def repeated_casts(evidence: Evidence) -> Conversions:
    """Conversions of parameters that a step need not repeat, as a live run saw, or else by the calls after them."""
    conversions = casts(evidence)
    uses = evidence.profile.uses
    if uses is not None:
        conversions = np.union1d(conversions, dequantisations(evidence))
        return _seen(evidence, conversions, [use for use in uses if use.kind == "weight_cast" and use.share])
    if evidence.training:
        return Conversions(conversions[:0], np.empty(0), False)
    repeated = conversions[weight_casts(evidence, conversions) | _of_norms(evidence, conversions)]
    return Conversions(repeated, np.ones(len(repeated)), False)


def _seen(evidence: Evidence, conversions: I8, uses: list[TensorUse]) -> Conversions:
    """The calls whose shape and types a live run saw converted; in sum no more than it saw."""
    spared: dict[Cast, float] = {}
    for use in uses:
        for cast in _listed(use.shapes):
            spared[cast] = max(spared.get(cast, 0.0), use.share or 0.0)
    unlisted = max((use.share or 0.0 for use in uses if "more shapes" in use.shapes), default=0.0)
    around = weight_casts(evidence, conversions) if unlisted else np.zeros(len(conversions), dtype=bool)
    share = np.array([spared.get(_cast(evidence, call), 0.0) for call in conversions.tolist()])
    share = np.where((share == 0) & around, unlisted, share)
    repeated, share = conversions[share > 0], share[share > 0]
    total = sum(use.total or use.count for use in uses)
    if len(repeated):
        share = share * min(1.0, total * evidence.steps.count / len(repeated))
    return Conversions(repeated, share, True)


def _listed(text: str) -> list[Cast]:
    """The conversions in a text like "12 x [768] float32 -> bfloat16, [768, 768] float32 -> bfloat16"."""
    return [
        (tuple(int(size) for size in match["shape"].split(",") if size.strip()), match["source"], match["target"])
        for match in CONVERSION.finditer(text)
    ]


def _cast(evidence: Evidence, call: int) -> Cast:
    target, source = tensors(evidence.group_of(call).call)[:2]
    return target.shape, source.dtype, target.dtype


def _of_norms(evidence: Evidence, conversions: I8) -> NDArray[np.bool_]:
    """One flag per conversion: whether it is of one row, and a call soon after it takes that row beside a matrix."""
    return np.array([_taken_by_norm(evidence, call) for call in conversions.tolist()], dtype=bool)


def _taken_by_norm(evidence: Evidence, call: int) -> bool:
    shape, _, dtype = _cast(evidence, call)
    if len(shape) != 1:
        return False
    for at in range(call + 1, min(call + 1 + CALLS_TO_NORM, len(evidence.calls))):
        inputs = tensors(evidence.group_of(at).call)
        takes = any(tensor.shape == shape and tensor.dtype == dtype for tensor in inputs[1:])
        if takes and any(tensor.shape[-1:] == shape and len(tensor.shape) > 1 for tensor in inputs):
            return True
    return False
