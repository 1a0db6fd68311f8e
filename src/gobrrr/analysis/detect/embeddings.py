"""Embedding tables with a dense gradient: which calls process all rows although a step uses only a few."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.fusion import tensors
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.cost.arguments import integer
from gobrrr.model.events import I8

EMBEDDING_BACKWARD = "aten::embedding_dense_backward"
"""The operation that makes a dense gradient."""

LOOKUPS = (
    EMBEDDING_BACKWARD,
    "aten::embedding",
    "aten::embedding_backward",
    "aten::index_select",
    "aten::embedding_renorm_",
)
"""Operations that only access the rows that the ids name."""


@dataclass(frozen=True)
class EmbeddingTable:
    """The tables of one shape.

    `passes`: calls that process all rows, and `share`: the table's share of the elements of each. `ids`: look-ups in a
    step; `used`: the share of the rows that a step looks up, or an upper bound from the number of ids. `gradients`: the
    calls that make the gradient, if they have device work.
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
        """The size of the table in float32."""
        return 4.0 * self.rows * self.width


def dense_tables(evidence: Evidence) -> list[EmbeddingTable]:
    """Tables with a dense gradient, except those of a shape that a matmul reads as well.

    Such a table may also be the weights of the output layer, whose gradient is dense.
    """
    gradients: dict[tuple[int, int], list[int]] = {shape: [] for shape in _seen(evidence)}
    for index, group in enumerate(evidence.priced.groups):
        shape = _table_of(group)
        if shape is not None:
            gradients.setdefault(shape, []).append(index)
    tables = [
        _table(evidence, shape, groups) for shape, groups in gradients.items() if not _multiplied(evidence, shape)
    ]
    return [table for table in tables if table.ids and len(table.passes)]


def _table_of(group: CallGroup) -> tuple[int, int] | None:
    """(rows, width) of the gradient that a call makes."""
    inputs = tensors(group.call)
    if group.call.name != EMBEDDING_BACKWARD or len(inputs) < 2 or not inputs[0].shape:
        return None
    rows = integer(group.call, 2)
    return (rows, inputs[0].shape[-1]) if rows else None


def _multiplied(evidence: Evidence, shape: tuple[int, int]) -> bool:
    """Whether a matmul reads a tensor of this shape, or its transpose."""
    return any(
        group.work.family == "matmul" and any(tensor.shape in (shape, shape[::-1]) for tensor in tensors(group.call))
        for group in evidence.priced.groups
    )


def _table(evidence: Evidence, shape: tuple[int, int], gradients: list[int]) -> EmbeddingTable:
    groups = evidence.priced.groups
    share = np.array([0.0 if group.call.name in LOOKUPS else _share(group, shape) for group in groups])
    wanted = np.zeros(len(groups), dtype=bool)
    wanted[gradients] = True
    calls = evidence.calls_where(wanted)
    passes = evidence.calls_where(share > 0)
    counts = [int(np.prod(tensors(groups[group].call)[1].shape)) for group in evidence.calls.group[calls].tolist()]
    used = _seen(evidence).get(shape)
    ids = round(sum(counts) / evidence.steps.count or (used or 0.0) * shape[0])
    return EmbeddingTable(
        rows=shape[0],
        width=shape[1],
        ids=ids,
        used=min(ids / shape[0], 1.0) if used is None else used,
        gradients=calls,
        passes=passes,
        share=share[evidence.calls.group[passes]],
    )


def _share(group: CallGroup, shape: tuple[int, int]) -> float:
    """The share of a call's elements that belongs to tensors of this shape."""
    shapes = [tensor.shape for tensor in tensors(group.call) if tensor.shape]
    sizes = [float(np.prod(dims, dtype=np.float64)) for dims in shapes]
    of_shape = sum(size for dims, size in zip(shapes, sizes, strict=True) if dims == shape)
    return of_shape / sum(sizes) if sum(sizes) else 0.0


def _seen(evidence: Evidence) -> dict[tuple[int, int], float]:
    """The share of the rows that a live run saw used, from the gradients of tables, by the table's shape."""
    shares: dict[tuple[int, int], float] = {}
    for use in evidence.profile.uses or ():
        sizes = [int(size) for size in re.findall(r"\d+", use.shapes.partition("]")[0])]
        if use.kind == "rows" and use.op == EMBEDDING_BACKWARD and use.share is not None and len(sizes) == 2:
            shape = sizes[0], sizes[1]
            shares[shape] = min(shares.get(shape, 0.0) + use.share, 1.0)
    return shares
