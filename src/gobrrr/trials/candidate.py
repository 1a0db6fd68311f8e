"""A way, or a set of ways, that can be tried, with its prediction. No torch here."""

from __future__ import annotations

import msgspec

from gobrrr.treatments.framework.together import Saving

LEAST_SHARE = 0.02
"""A way that is predicted to save less of the step is not tried, nor put into a set for it; a prediction that grows by
less changes nothing."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A way that fits the workload, and its prediction: ns of one step as it is now, per unit of its work.

    `unpredicted`: nothing predicts it, and the three figures are None. `why_not`: why it isn't worth a trial here, ""
    where it may be. A set of ways has them as `members`, with what each `adds` to the others, (expected, low, high).
    `leaves_out`: a kept way, where what is to be tried is the step without it. The other fields are the way's own.
    """

    way: str
    treatment: str
    code: str = ""
    rank: int = 0
    as_if: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    fresh: bool = False
    compiles: bool = False
    slow: bool = False
    work: float = 1.0
    expected_ns: float | None = None
    low_ns: float | None = None
    high_ns: float | None = None
    unpredicted: bool = False
    why_not: str = ""
    members: tuple[str, ...] = ()
    adds: tuple[Saving, ...] = ()
    leaves_out: str = ""
