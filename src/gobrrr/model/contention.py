"""What other processes had of the machine during a measurement."""

from __future__ import annotations

import msgspec

from gobrrr import units

DISTURBED = 0.1
"""The share of the time lost to other processes from which a figure counts as disturbed. On a quiet machine the
quartiles of a figure lie within 10 % of its median (`report.machine.WIDE_SPREAD`)."""


class Contention(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What other processes had over `seconds`. None: the system does not say.

    `processors`: how many this process may use; `others`: how many of these other processes used, the mean over the
    time (including what a hypervisor gave to other machines). `waited`: the share of the time that the longest-waiting
    thread of this process was ready to run without a processor. `throttled`: the share of the control group's periods
    in which its quota was used up. `device`: the share of the time that other processes used the GPU.
    """

    seconds: float
    processors: int
    others: float | None = None
    waited: float | None = None
    throttled: float | None = None
    device: float | None = None

    @property
    def lost(self) -> float | None:
        """An upper bound of the share of the time that other processes kept a thread of this process from running.

        A thread waits for another process no longer than that process runs. Where the system does not say how long
        threads waited, it is the share of all processors that others had. None: not known.
        """
        if self.waited is None:
            return None if self.others is None else min(self.others / max(self.processors, 1), 1.0)
        return min(self.waited, 1.0 if self.others is None else self.others, 1.0)

    @property
    def disturbed(self) -> bool:
        """Whether others are known to have had so much that timings of that time are off."""
        return self.others is not None and (self.lost or 0.0) >= DISTURBED

    def in_words(self) -> str:
        """What others had, as a clause, or how long a thread waited where only that is known; "" where it is little."""
        clauses = []
        if self.others is not None and self.others >= DISTURBED:
            of = f"the {self.processors} processors" if self.processors > 1 else "the only processor"
            clauses.append(f"other processes had {self.others:.1f} of {of}")
        elif self.others is None and self.waited is not None and self.waited >= DISTURBED:
            clauses.append(self.wait_in_words())
        if self.throttled is not None and self.throttled >= DISTURBED:
            periods = units.percent(self.throttled)
            clauses.append(f"the control group held this process back in {periods} of its periods")
        if self.device is not None and self.device >= DISTURBED:
            clauses.append(f"other processes used the GPU {units.percent(self.device)} of the time")
        return ", and ".join(clauses)

    def wait_in_words(self) -> str:
        """How long a thread of this process waited, as a clause."""
        return f"a thread of this program waited {units.percent(self.waited)} of the time for a processor"
