"""The tree of places: equal host events that are called from the same place are one node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.places.labels import PlaceSort
from gobrrr.model.events import ABSENT, I8
from gobrrr.model.tree import depths

ROOT = 0
"""The node of the program."""


@dataclass(frozen=True)
class Tree:
    """Nodes as columns; node 0 is the program, and a parent comes before its children.

    `parent`: -1 for the root; `label`: an index into `labels`, which are (sort, text); `of_row`: the node of each host
    event: its own where the event is a place, else the node around it.
    """

    parent: I8
    label: I8
    labels: list[tuple[int, str]]
    of_row: I8

    def __len__(self) -> int:
        return len(self.parent)


class TreeBuilder:
    """A tree under construction: it adds children of many parents at once."""

    def __init__(self, labels: list[tuple[int, str]]) -> None:
        self.labels = [*labels, (int(PlaceSort.NONE), "")]
        self.parents: list[I8] = [np.array([ABSENT])]
        self.kinds: list[I8] = [np.array([len(self.labels) - 1])]
        self.count = 1
        self._keys = np.empty(0, dtype=np.int64)
        self._nodes = np.empty(0, dtype=np.int64)

    def label(self, sort: int, texts: list[str]) -> I8:
        """The labels of these texts; new ones are added."""
        known = {label: at for at, label in enumerate(self.labels)}
        for text in dict.fromkeys(texts):
            if (sort, text) not in known:
                known[sort, text] = len(self.labels)
                self.labels.append((sort, text))
        return np.array([known[sort, text] for text in texts], dtype=np.int64)

    def children(self, parent: I8, label: I8) -> I8:
        """The node for each (parent, label); new ones are added."""
        key = parent * _WIDTH + label
        unique: I8
        unique, inverse = np.unique(key, return_inverse=True)
        at: I8 = np.searchsorted(self._keys, unique)
        exists: NDArray[np.bool_] = at < len(self._keys)
        exists[exists] = self._keys[at[exists]] == unique[exists]
        nodes = np.empty(len(unique), dtype=np.int64)
        nodes[exists] = self._nodes[at[exists]]
        new = unique[~exists]
        nodes[~exists] = np.arange(self.count, self.count + len(new))
        self.count += len(new)
        self.parents.append(new // _WIDTH)
        self.kinds.append(new % _WIDTH)
        keys, all_nodes = np.concatenate([self._keys, new]), np.concatenate([self._nodes, nodes[~exists]])
        order = np.argsort(keys, kind="stable")
        self._keys, self._nodes = keys[order], all_nodes[order]
        result: I8 = nodes[np.asarray(inverse).reshape(-1)]
        return result

    def done(self, of_row: I8) -> Tree:
        """The finished tree."""
        return Tree(np.concatenate(self.parents), np.concatenate(self.kinds), self.labels, of_row)


_WIDTH = 1 << 31
"""More than there are labels: node * `_WIDTH` + label is unique."""


def plant(parent: I8, label: I8, line: I8, labels: list[tuple[int, str]]) -> tuple[TreeBuilder, I8]:
    """(the tree so far, the node of each row). `label`: of each row, -1 where it is no place; `line`: the label of the
    source line that calls the row, -1 where it is not known."""
    planting = TreeBuilder(labels)
    node = np.zeros(len(parent), dtype=np.int64)
    # the line of rows that are no place themselves: the places that they call are called from that line
    passed = np.full(len(parent), ABSENT, dtype=np.int64)
    depth = depths(parent)
    order = np.argsort(depth, kind="stable")
    edges = np.flatnonzero(np.diff(depth[order])) + 1
    for rows in np.split(order, edges) if len(order) else ():
        around = np.where(parent[rows] >= 0, node[np.maximum(parent[rows], 0)], ROOT)
        named = label[rows] >= 0
        from_line = np.where(
            line[rows] >= 0, line[rows], np.where(parent[rows] >= 0, passed[np.maximum(parent[rows], 0)], ABSENT)
        )
        passed[rows] = np.where(named, ABSENT, from_line)
        lined = named & (from_line >= 0)
        if lined.any():
            around[lined] = planting.children(around[lined], from_line[lined])
        if named.any():
            around[named] = planting.children(around[named], label[rows[named]])
        node[rows] = around
    return planting, node
