"""Whether a later call reads a chain's intermediates again, so that a fused kernel must write them anyway.

A trace does not say which tensor is which, so tensors of the chain's shape are counted. The chain leaves one, its
output. A call that takes more of them than were written since then reads an older one, which may be an intermediate.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.fusion import Chain, output_of, tensors
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.model.work import DTYPE_BYTES

CALLS_EXAMINED = 64
"""How many calls after a chain are examined: the end of a residual block is nearer. Chosen, not measured."""

Shape = tuple[int, ...]


class Rereads:
    """Answers for chains of one evidence."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._step = evidence.step_of_call
        self._of_group: dict[tuple[int, Shape], tuple[int, bool]] = {}
        self._inside = cache(self._inside_of)

    def after(self, chain: Chain) -> bool:
        """Whether a later call of the same step takes more tensors of the chain's shape than were written since."""
        last = chain.calls[-1]
        group = self._evidence.group_of(chain.calls[-2])
        shape = output_of(group.call, group.work.family)[0]
        if shape is None:
            return True
        left = 1
        for call in range(last + 1, min(last + 1 + CALLS_EXAMINED, len(self._step))):
            if self._step[call] != self._step[last]:
                break
            taken, written = self._counts(call, shape)
            if taken > left:
                return True
            left += written - taken
        return False

    def inside(self, chain: Chain) -> float:
        """Bytes of tensors of the chain's shape that its calls read beside the result of the call before.

        They may be earlier intermediates or the chain's input again (`sigmoid(y) * y`): a fused kernel does not read
        them.
        """
        return sum(map(self._inside, pairwise(self._evidence.calls.group[list(chain.calls)].tolist())))

    def _inside_of(self, pair: tuple[int, int]) -> float:
        before, group = (self._evidence.priced.groups[number] for number in pair)
        shape = output_of(before.call, before.work.family)[0]
        others = [tensor for tensor in tensors(group.call) if tensor.shape == shape][1:]
        return sum(
            DTYPE_BYTES.get(tensor.dtype, 0.0) * float(np.prod(tensor.shape, dtype=np.float64)) for tensor in others
        )

    def _counts(self, call: int, shape: Shape) -> tuple[int, bool]:
        """(tensors of the shape that a call takes, whether it writes one)."""
        key = int(self._evidence.calls.group[call]), shape
        if key not in self._of_group:
            self._of_group[key] = _counts(self._evidence.group_of(call), shape)
        return self._of_group[key]


def _counts(group: CallGroup, shape: Shape) -> tuple[int, bool]:
    taken = sum(tensor.shape == shape for tensor in tensors(group.call))
    return taken, output_of(group.call, group.work.family)[0] == shape
