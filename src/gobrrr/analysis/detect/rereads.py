"""Whether a chain's intermediates are read once more behind it, so that a fused kernel has to write them after all.

A trace does not say which tensor is which. Tensors of the chain's shape are counted: the chain leaves one, its output.
A call that takes more of them than were left and written since reads an older one, which may be an intermediate.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.fusion import Chain, output_of, tensors
from gobrrr.analysis.pricing.price import Group
from gobrrr.model.events import I8
from gobrrr.model.work import ITEM_BYTES

AHEAD = 64
"""Calls behind a chain that are looked at: a residual block's end is nearer."""

Shape = tuple[int, ...]


class Rereads:
    """Answers for chains of one evidence."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._step = _steps(evidence)
        self._of_group: dict[tuple[int, Shape], tuple[int, bool]] = {}
        self._inside = cache(self._inside_of)

    def after(self, chain: Chain) -> bool:
        """Whether a call behind the chain, in the same step, takes more tensors of its shape than it can have new."""
        last = chain.calls[-1]
        group = self._evidence.group_of(chain.calls[-2])
        shape = output_of(group.call, group.work.family)[0]
        if shape is None:
            return True
        left = 1
        for call in range(last + 1, min(last + 1 + AHEAD, len(self._step))):
            if self._step[call] != self._step[last]:
                break
            taken, written = self._counts(call, shape)
            if taken > left:
                return True
            left += written - taken
        return False

    def inside(self, chain: Chain) -> float:
        """Bytes that calls of a chain read beside what the one before hands on, in tensors of the chain's own shape.

        They may be earlier intermediates or the chain's input once more (`sigmoid(y) * y`): one kernel need not read
        them.
        """
        return sum(map(self._inside, pairwise(self._evidence.calls.group[list(chain.calls)].tolist())))

    def _inside_of(self, pair: tuple[int, int]) -> float:
        before, group = (self._evidence.priced.groups[one] for one in pair)
        shape = output_of(before.call, before.work.family)[0]
        given = [tensor for tensor in tensors(group.call) if tensor.shape == shape]
        return sum(
            ITEM_BYTES.get(tensor.dtype, 0.0) * float(np.prod(tensor.shape, dtype=np.float64)) for tensor in given[1:]
        )

    def _counts(self, call: int, shape: Shape) -> tuple[int, bool]:
        """(tensors of the shape that a call takes, whether it writes one)."""
        key = int(self._evidence.calls.group[call]), shape
        if key not in self._of_group:
            self._of_group[key] = _counts(self._evidence.group_of(call), shape)
        return self._of_group[key]


def _counts(group: Group, shape: Shape) -> tuple[int, bool]:
    taken = sum(tensor.shape == shape for tensor in tensors(group.call))
    return taken, output_of(group.call, group.work.family)[0] == shape


def _steps(evidence: Evidence) -> I8:
    """The step of each call, by where the host launched it: the device may be a step behind."""
    links = evidence.priced.links
    launch = links.launch[evidence.calls.first]
    when = np.where(launch >= 0, evidence.replayed.start_ns[np.maximum(launch, 0)], evidence.calls.start_ns)
    return np.searchsorted(np.array(evidence.steps.begins, dtype=np.int64), when, side="right")
