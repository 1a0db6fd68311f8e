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
    found = [_of(evidence, use) for use in uses if use.kind == "flagged_mask" and use.share and use.op != MATH]
    found.sort(key=lambda flagged: -float(evidence.calls.ns[flagged.calls].sum()))
    return [flagged for flagged in found if len(flagged.calls)]


def _of(evidence: Evidence, use: TensorUse) -> Flagged:
    fused = np.array([group.work.family == "attention" for group in evidence.priced.groups] or [False], dtype=bool)
    calls = evidence.calls_where(fused)
    mine = [call for call in calls.tolist() if evidence.source(int(evidence.calls.op[call])) == use.source]
    return Flagged(use, use.share or 1.0, np.array(mine, dtype=np.int64))
