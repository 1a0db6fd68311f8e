"""Calls on a CPU that took far longer than equal calls in the recording, because another process had the processor."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.events.links import Links
from gobrrr.model.events import I8, EventTable

STALLED = 2.0
"""How many times as long as the shortest equal call a call may take without a stall: cold memory, another clock.
Chosen, not measured."""


def stalls(events: EventTable, links: Links) -> NDArray[np.float64]:
    """For each piece of device work, ns beyond `STALLED` times the shortest call with the same operation and sizes.

    0 for work without recorded sizes, and where the recording has no equal call.
    """
    ns = events.duration_ns[links.device].astype(np.float64)
    beyond = np.zeros(len(ns))
    known = np.flatnonzero((links.op >= 0) & (events.dims[np.maximum(links.op, 0)] >= 0))
    if not len(known):
        return beyond
    op, of_piece = np.unique(links.op[known], return_inverse=True)
    of_piece = np.asarray(of_piece).reshape(-1)
    took = np.bincount(of_piece, weights=ns[known])  # a call may have several pieces of work
    key = np.stack([events.name[op], events.dims[op], events.types[op], events.strides[op]], axis=1)
    _, kind = np.unique(key, axis=0, return_inverse=True)
    kind = np.asarray(kind).reshape(-1)
    shortest = np.full(int(kind.max()) + 1, np.inf)
    np.minimum.at(shortest, kind, took)
    share = np.maximum(1.0 - STALLED * shortest[kind] / np.maximum(took, 1.0), 0.0)
    beyond[known] = ns[known] * share[of_piece]
    return beyond


def stalled_until(events: EventTable, links: Links, at: I8) -> NDArray[np.float64]:
    """Nanoseconds of stalls before each instant; each stall is spread evenly over its piece of work."""
    rows, beyond = links.device, stalls(events, links)
    if not len(rows):
        return np.zeros(len(at))
    edges = np.stack([events.start_ns[rows], events.end_ns[rows]], axis=1).reshape(-1)
    passed = np.cumsum(np.stack([np.zeros(len(rows)), beyond], axis=1).reshape(-1))
    stalled: NDArray[np.float64] = np.interp(at, np.maximum.accumulate(edges), passed)
    return stalled
