"""A way, or a set of ways, that can be tried, with its prediction. Needs no torch."""

from __future__ import annotations

import msgspec

from gobrrr.treatments.framework.together import Saving

LEAST_SAVING_SHARE = 0.02
"""A way that is predicted to save a smaller share of the step is neither tried nor put into a set, and a prediction
that grows by less changes nothing. Chosen, not measured."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A way that fits the workload, and its predicted saving in ns of the present step, per unit of work.

    `unpredicted`: nothing predicts it, and the three figures are None. `why_not`: why a trial does not pay here, or "".
    `members`: the ways of a set, and `adds` what each adds to the others, (expected, low, high). `leaves_out`: the kept
    way without which the step is to be tried. The other fields are those of `Way`.
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
