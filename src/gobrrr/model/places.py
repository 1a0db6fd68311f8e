"""The places of a step in a diagnosis: where in the program its time is."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal[
    "program", "module", "function", "line", "call", "op", "annotation", "driver", "kernel", "input", "unknown"
]
"""The kind of a place. "call": a library's function that the program calls itself; "driver": a driver call that waits,
allocates or loads; "input": all that prepares the step's input, where no function around it is known; "unknown": device
work whose launch was not recorded."""


class PlaceNode(msgspec.Struct, frozen=True, kw_only=True):
    """One place of the step. Times are per step, of the leading device; every nanosecond belongs to one place.

    `id`: the place's position in the list; `parent`: the id of the enclosing place (None: the program, which is the
    first). A parent comes before its children. `name`: for a line its text, where that is known; `source`: the nearest
    line at or around the place, "path/file.py(28): train", or the line where its function begins. `calls`: how often
    the place is entered; None for a line and for the input.

    `step_ns`: the place's time in the step, enclosed places included. While the device works, an instant belongs to
    the place that launched the work; while the device idles, to where the host is on its way to the next work.
    `own_ns`: the part that no enclosed listed place has. `device_ns` and `host_ns` (by the causes of the budget) sum to
    `step_ns`. `backward_ns`: the backward pass's part, which counts at the place of the forward operation.
    `gone_ns`: how much shorter the step would be if the whole place took no time, by replay; None: not replayed.
    `merged`: the number of enclosed places too small to be listed; `own_ns` includes their time.
    """

    id: int
    parent: int | None
    kind: Kind
    name: str
    source: str | None
    calls: float | None
    step_ns: int
    own_ns: int
    device_ns: int
    host_ns: dict[str, int]
    backward_ns: int = 0
    gone_ns: float | None = None
    merged: int = 0
