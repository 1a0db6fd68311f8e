"""Positions of a padded batch that hold no data, and the calls whose work grows with the positions."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.fusion import tensors
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.model.events import I8
from gobrrr.model.live import TensorUse

SHAPE = re.compile(r"\[(?P<shape>\d[\d, ]*)\]")
"""A shape in the text of a `TensorUse`."""

IDS = ("aten::embedding", "aten::_embedding_bag")
LOSSES = ("aten::nll_loss_forward", "aten::nll_loss2d_forward")
"""Operations whose ids or targets show padding; padding that any other operation shows is an attention mask's."""


@dataclass(frozen=True)
class Padding:
    """`share` of `tokens` positions is padding.

    `said`: the ids or the mask that show it; `agrees`: another tensor shows the same share. `calls`: those whose work
    grows with the positions.
    """

    share: float
    tokens: int
    said: TensorUse
    agrees: bool
    calls: I8


def padding(evidence: Evidence, agreement: float = 0.1) -> Padding | None:
    """The padding that a live run saw in the ids, else in the attention masks; None where there is none.

    Ignored targets alone do not mean padding: a prompt's targets are ignored as well.
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
    """The first shape in the text of a use; None for fewer than two dimensions."""
    match = SHAPE.search(use.shapes)
    shape = tuple(int(size) for size in match["shape"].split(",")) if match else ()
    return shape if len(shape) >= 2 else None


def _growing(evidence: Evidence, tokens: int, length: int) -> I8:
    """Calls whose work grows with the positions, without the optimizer's."""
    calls = evidence.calls_that(lambda group: _grows(group, tokens, length))
    optimizer = evidence.updates
    if optimizer.annotated:
        rows = evidence.priced.links.op[optimizer.work]
        calls = calls[~np.isin(evidence.calls.op[calls], rows)]
    return calls


def _grows(group: CallGroup, tokens: int, length: int) -> bool:
    """Whether a tensor of the call has an element per position: one size is that of all positions, or of a sequence."""
    return any(
        any(size in (tokens, length) for size in tensor.shape) and math.prod(tensor.shape) % tokens == 0
        for tensor in tensors(group.call)
    )
