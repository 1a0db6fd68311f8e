"""Which forward operation each node of autograd's graph differentiates, told while both passes are dispatched."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec
import torch

from gobrrr.model.recording import RecordedCall

NO_TASK = -1
"""What torch says outside of a backward pass."""


class Owned(NamedTuple):
    """Where an operation belongs. `task`: the backward pass that it runs in; `grad`: whether grad mode is on."""

    site: int
    needed: float
    node: str
    task: int
    grad: bool


class Owners:
    """The (site, share that the maths needs) of each node, by the node's sequence number."""

    def __init__(self) -> None:
        self._of_node: dict[int, tuple[int, float]] = {}

    def of_this(self, here: Callable[[], int], needed: float) -> Owned:
        """The operation that is dispatched now: its node's forward operation's site, else what `here` says."""
        task = torch._C._current_graph_task_id()
        grad = torch.is_grad_enabled()
        node = torch._C._current_autograd_node() if task != NO_TASK and not grad else None
        site, share = self._of_node.get(node._sequence_nr(), (-1, 1.0)) if node is not None else (-1, 1.0)
        if site < 0:
            site, share = here(), needed
            if node is None:
                # an operation's autograd node is made just before it is dispatched: the first to come owns it
                self._of_node.setdefault(torch.autograd._get_sequence_nr() - 1, (site, share))
        return Owned(site, share, node.name() if node is not None else "", task, grad)


def with_recomputed(drafts: Iterable[tuple[RecordedCall, int, bool]]) -> tuple[RecordedCall, ...]:
    """The calls (each with its `task` and `grad`), those that a backward pass repeats from the forward pass marked.

    A backward pass runs with grad mode off; what runs in it with grad mode on is a checkpoint's recomputation. If
    all of a backward pass has it on, it was asked to build a graph itself (`create_graph=True`) and nothing is.
    """
    drafts = list(drafts)
    plain = {task for _, task, grad in drafts if task != NO_TASK and not grad}
    return tuple(
        msgspec.structs.replace(call, recomputed=True) if grad and task in plain else call
        for call, task, grad in drafts
    )
