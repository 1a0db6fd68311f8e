"""Keeps the program's state while its step is run for a measurement: what the step changes is put back at the end."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import TracebackType

from gobrrr import units
from gobrrr.guarded import failed
from gobrrr.model.workload import Workload
from gobrrr.observe.live.apart import apart
from gobrrr.observe.live.state.snapshot import Snapshot, TooLarge, random_states
from gobrrr.observe.live.state.unreached import Unreached
from gobrrr.system.memory import available_bytes
from gobrrr.units import bytes_

HOST_MEMORY_SHARE = 0.5
"""The share of the host's free memory that copies may take; chosen."""
NOT_REACHED = (
    "no model, optimizer or tensor is reached from the step: what it changed of its own, if anything, is not put back"
)
"""The note on a step of which nothing could be copied."""

Stages = Callable[[str, int, int], None]


class StatePreserver:
    """Call `keep(workload)` before a workload runs for the first time. The end of the block puts everything back.

    Copies are in the host's memory, so that they take none of the device's. `notes` says what is not put back; it is
    complete at the end of the block.
    """

    def __init__(self, stages: Stages | None = None) -> None:
        self.notes: list[str] = []
        self._stages = stages
        self._kept: list[Snapshot] = []
        self._unreached: Unreached | None = None
        self._whole = False
        self._left = False

    def __enter__(self) -> StatePreserver:
        with apart():
            self._numbers = random_states()
        return self

    def keep(self, workload: Workload) -> None:
        """Copy what the workload can change, as far as it is found and fits into the host's memory."""
        self._tell("copying the state that the step changes")
        free = available_bytes()
        most = math.inf if free is None else HOST_MEMORY_SHARE * free
        beside = self._kept[-1] if self._kept else None
        try:
            with apart():
                snapshot = Snapshot(workload, device_share=0.0, most_bytes=most, beside=beside)
        except TooLarge as error:
            self._left = True
            self.notes.append(
                f"the state that the step changes is not put back: a copy of it takes {bytes_(error.size)}, more "
                f"than half of the {bytes_(free)} that the host's memory has left"
            )
            return
        except Exception as error:
            self._left = True
            self.notes.append(f"what the step changes is not put back; its state {failed('the state', error)}")
            return
        self._kept.append(snapshot)
        self._whole = self._whole or snapshot.whole
        self._unreached = Unreached(self._kept)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._tell("putting the state back")
        self._add_notes()
        try:
            for snapshot in reversed(self._kept):
                snapshot.restore()
        except Exception as fault:  # a reset of the user's, or a device that an error has stopped
            self.notes.append(f"not all that the step changed is put back: {type(fault).__name__}: {fault}")
        with apart():
            for undo in self._numbers:
                undo()

    def _add_notes(self) -> None:
        for snapshot in self._kept:
            self.notes += [note for note in snapshot.notes if note not in self.notes]
        if self._left or not self._kept:
            return
        if not self._whole:
            self.notes.append(NOT_REACHED)
        changed = self._unreached.changed() if self._unreached is not None else {}
        if changed:
            holders = ", ".join(list(changed)[:4])
            self.notes.append(
                f"not put back: {units.things(sum(changed.values()), 'changed tensor')} of {holders}, to which nothing "
                "leads that the step names; give them to a gobrrr.Workload"
            )

    def _tell(self, stage: str) -> None:
        if self._stages is not None:
            self._stages(stage, 0, 1)
