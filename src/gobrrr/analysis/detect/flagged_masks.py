"""Fused attention that was given a mask as a tensor where a flag, or no mask, says the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gobrrr.analysis.detect.math_attention import MATH
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.events import I8
from gobrrr.model.live import TensorUse


@dataclass(frozen=True)
class Flagged:
    """The masks of one line. `share`: of the scores that are seen, 1 where the mask hides none; `calls`: the attention
    of the line, with its backward pass."""

    use: TensorUse
    share: float
    calls: I8


def flagged_masks(evidence: Evidence) -> list[Flagged]:
    """The lines whose masks a live run has read, where the fused kernel's calls are known; the longest first."""
    uses = evidence.profile.uses or ()
    found = [_of(evidence, one) for one in uses if one.kind == "flagged_mask" and one.share and one.op != MATH]
    found.sort(key=lambda one: -float(evidence.calls.ns[one.calls].sum()))
    return [one for one in found if len(one.calls)]


def _of(evidence: Evidence, use: TensorUse) -> Flagged:
    fused = np.array([one.work.family == "attention" for one in evidence.priced.groups] or [False], dtype=bool)
    calls = evidence.calls_where(fused)
    mine = [call for call in calls.tolist() if evidence.source(int(evidence.calls.op[call])) == use.source]
    return Flagged(use, use.share or 1.0, np.array(mine, dtype=np.int64))
