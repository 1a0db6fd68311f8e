"""Embedding tables with a dense gradient: which calls go over all rows for the few that were looked up."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.fusion import tensors
from gobrrr.analysis.pricing.price import Group
from gobrrr.cost.arguments import integer
from gobrrr.model.events import I8

BACKWARD = "aten::embedding_dense_backward"

LOOKUPS = (BACKWARD, "aten::embedding", "aten::embedding_backward", "aten::index_select", "aten::embedding_renorm_")
"""What only touches the rows that the ids name."""


@dataclass(frozen=True)
class Table:
    """One shape of table. `passes`: calls that go over all of it, `share`: how much of each is the table's.

    `used`: share of the rows that a step looks up, at most one a looked-up id; `gradients`: the calls that make it,
    as far as they left device work.
    """

    rows: int
    width: int
    ids: int
    used: float
    gradients: I8
    passes: I8
    share: NDArray[np.float64]

    @property
    def bytes(self) -> float:
        """Of the table in float32."""
        return 4.0 * self.rows * self.width


def dense_tables(evidence: Evidence) -> list[Table]:
    """Tables with a dense gradient, but for those of a shape that a matmul reads as well.

    Such a table may be the output's weights too, whose gradient is dense.
    """
    found: dict[tuple[int, int], list[int]] = {shape: [] for shape in _seen(evidence)}
    for index, group in enumerate(evidence.priced.groups):
        shape = _table_of(group)
        if shape is not None:
            found.setdefault(shape, []).append(index)
    tables = [_table(evidence, shape, groups) for shape, groups in found.items() if not _multiplied(evidence, shape)]
    return [table for table in tables if table.ids and len(table.passes)]


def _table_of(group: Group) -> tuple[int, int] | None:
    """(rows, width) of the gradient that a call makes."""
    given = tensors(group.call)
    if group.call.name != BACKWARD or len(given) < 2 or not given[0].shape:
        return None
    rows = integer(group.call, 2)
    return (rows, given[0].shape[-1]) if rows else None


def _multiplied(evidence: Evidence, shape: tuple[int, int]) -> bool:
    return any(
        group.work.family == "matmul" and any(tensor.shape in (shape, shape[::-1]) for tensor in tensors(group.call))
        for group in evidence.priced.groups
    )


def _table(evidence: Evidence, shape: tuple[int, int], gradients: list[int]) -> Table:
    groups = evidence.priced.groups
    share = np.array([0.0 if group.call.name in LOOKUPS else _share(group, shape) for group in groups])
    wanted = np.zeros(len(groups), dtype=bool)
    wanted[gradients] = True
    made = evidence.calls_where(wanted)
    passes = evidence.calls_where(share > 0)
    each = [int(np.prod(tensors(groups[group].call)[1].shape)) for group in evidence.calls.group[made].tolist()]
    used = _seen(evidence).get(shape)
    ids = round(sum(each) / evidence.steps.count or (used or 0.0) * shape[0])
    return Table(
        rows=shape[0],
        width=shape[1],
        ids=ids,
        used=min(ids / shape[0], 1.0) if used is None else used,
        gradients=made,
        passes=passes,
        share=share[evidence.calls.group[passes]],
    )


def _share(group: Group, shape: tuple[int, int]) -> float:
    """Share of a call's elements that are of tensors of this shape."""
    sizes = [
        (tensor.shape, float(np.prod(tensor.shape, dtype=np.float64))) for tensor in tensors(group.call) if tensor.shape
    ]
    total = sum(size for _, size in sizes)
    return sum(size for one, size in sizes if one == shape) / total if total else 0.0


def _seen(evidence: Evidence) -> dict[tuple[int, int], float]:
    """What a live run saw of the gradients of tables: the share of the rows that were used, by the table's shape."""
    found: dict[tuple[int, int], float] = {}
    for use in evidence.profile.uses or ():
        sizes = [int(size) for size in re.findall(r"\d+", use.shapes.partition("]")[0])]
        if use.kind == "rows" and use.op == BACKWARD and use.share is not None and len(sizes) == 2:
            shape = sizes[0], sizes[1]
            found[shape] = min(found.get(shape, 0.0) + use.share, 1.0)
    return found
