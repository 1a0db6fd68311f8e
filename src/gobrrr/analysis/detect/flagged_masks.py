"""Fused attention with a mask tensor where a flag, or no mask, would do the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gobrrr.analysis.detect.math_attention import MATH_ATTENTION
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.events import I8
from gobrrr.model.live import TensorUse


@dataclass(frozen=True)
class FlaggedMask:
    """The masks of one line.

    `share`: the share of the scores that the mask lets through, 1 where it hides none; `calls`: the attention of the
    line, with its backward pass.
    """

    use: TensorUse
    share: float
    calls: I8


def flagged_masks(evidence: Evidence) -> list[FlaggedMask]:
    """The lines whose masks a live run examined, where the fused kernel's calls are known; most time first."""
    uses = evidence.profile.uses or ()
    lines = [
        _at_line(evidence, use) for use in uses if use.kind == "flagged_mask" and use.share and use.op != MATH_ATTENTION
    ]
    lines.sort(key=lambda flagged: -float(evidence.calls.ns[flagged.calls].sum()))
    return [flagged for flagged in lines if len(flagged.calls)]


def _at_line(evidence: Evidence, use: TensorUse) -> FlaggedMask:
    attention = evidence.calls_where(evidence.groups_where("attention")).tolist()
    calls = [call for call in attention if evidence.source(int(evidence.calls.op[call])) == use.source]
    return FlaggedMask(use, use.share or 1.0, np.array(calls, dtype=np.int64))
