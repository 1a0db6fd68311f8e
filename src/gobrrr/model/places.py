"""The places of a step, as the diagnosis has them: where in the program its time is."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal[
    "program", "module", "function", "line", "call", "op", "annotation", "driver", "kernel", "input", "unknown"
]
"""Of a place. "call": a function of a library that the program calls itself; "driver": a call of the driver's that
waits, allocates or loads; "input": all that prepares the step's input, where no function around it is known; "unknown":
device work whose launch was not recorded."""


class PlaceNode(msgspec.Struct, frozen=True, kw_only=True):
    """One place of the step. Times are of one step, of the leading device; every nanosecond is at one place.

    `id` is the place's position in the list, and `parent` the id of the place around it (None: the program, which is
    the first); a parent comes before its children. `name`: of a line what stands there, where that is known; `source`:
    the nearest line at or around the place, "path/file.py(28): train", or the line that its function begins at.
    `calls`: how often it is entered, None of a line and of the input.

    `step_ns`: what the place has of the step, what is within it included. While the device works, an instant belongs to
    the place that launched the work; while it idles, to where the host is on its way to the next work. `own_ns`: the
    part that no listed place within has. `device_ns` and `host_ns`, by the causes of the budget, sum to `step_ns`.
    `backward_ns`: the part of the backward pass, which is where the forward operation is.
    `gone_ns`: what the step would lose if all of the place took no time, by replay; None where that was not asked.
    `merged`: places within it that are too small to be listed: `own_ns` has their time.
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
