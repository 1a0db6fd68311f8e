"""Positions of a padded batch that hold nothing, and the calls whose work grows with the positions."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.fusion import tensors
from gobrrr.analysis.pricing.price import Group
from gobrrr.model.events import I8
from gobrrr.model.live import TensorUse

SHAPE = re.compile(r"\[(?P<shape>\d[\d, ]*)\]")

IDS = ("aten::embedding", "aten::_embedding_bag")
LOSSES = ("aten::nll_loss_forward", "aten::nll_loss2d_forward")


@dataclass(frozen=True)
class Padding:
    """`share` of `tokens` positions is padding, by what `said` it (ids or masks); `agrees`: the others say the same.

    `calls`: those whose work grows with the positions.
    """

    share: float
    tokens: int
    said: TensorUse
    agrees: bool
    calls: I8


def padding(evidence: Evidence, agreement: float = 0.1) -> Padding | None:
    """The padding of the ids, else of the attention masks, that a live run saw; None where there is none.

    Ignored targets alone are no padding: a prompt's are ignored as well.
    """
    uses = [use for use in evidence.profile.uses or () if use.kind == "padding" and use.share]
    ids = [use for use in uses if use.op in IDS]
    masks = [use for use in uses if use.op not in (*IDS, *LOSSES)]
    if not ids and not masks:
        return None
    said = max(ids or masks, key=lambda use: use.total or 0)
    shape = _shape(said)
    if said.share is None or shape is None:
        return None
    others = [use.share for use in uses if use is not said and use.share is not None]
    rows, length = shape[0], shape[-1]
    return Padding(
        share=said.share,
        tokens=rows * length,
        said=said,
        agrees=any(abs(other - said.share) <= agreement for other in others),
        calls=_growing(evidence, rows * length, length),
    )


def _shape(use: TensorUse) -> tuple[int, ...] | None:
    """The first of the shapes that a use names; None for less than two dimensions."""
    found = SHAPE.search(use.shapes)
    shape = tuple(int(size) for size in found["shape"].split(",")) if found else ()
    return shape if len(shape) >= 2 else None


def _growing(evidence: Evidence, tokens: int, length: int) -> I8:
    grows: NDArray[np.bool_] = np.array([_grows(group, tokens, length) for group in evidence.priced.groups], dtype=bool)
    calls = evidence.calls_where(grows)
    optimizer = evidence.updates
    if optimizer.annotated:
        rows = evidence.priced.links.op[optimizer.work]
        calls = calls[~np.isin(evidence.calls.op[calls], rows)]
    return calls


def _grows(group: Group, tokens: int, length: int) -> bool:
    """Whether a tensor of the call has a place for each position: a size of all positions, or of a sequence."""
    return any(
        any(size in (tokens, length) for size in tensor.shape) and math.prod(tensor.shape) % tokens == 0
        for tensor in tensors(group.call)
    )
