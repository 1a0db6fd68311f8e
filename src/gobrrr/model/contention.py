"""What other processes had of the machine while something was measured."""

from __future__ import annotations

import msgspec

from gobrrr import units

DISTURBED = 0.1
"""A share of the time lost to others from which a figure is off by more than figures repeat on a quiet machine: their
quartiles lie within 10 % of the median (`report.machine.WIDE_SPREAD`)."""


class Contention(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What others had over `seconds`. None: the system does not say.

    `processors`: those that this process may use, and `others`: how many of them other processes had, the mean over the
    time (with what a hypervisor gave to other machines). `waited`: the share of the time for which the thread of this
    process that waited longest was ready to run and had no processor. `throttled`: the share of the control group's
    periods in which its quota was used up. `device`: the share of the time for which other processes used the GPU.
    """

    seconds: float
    processors: int
    others: float | None = None
    waited: float | None = None
    throttled: float | None = None
    device: float | None = None

    @property
    def lost(self) -> float | None:
        """The share of the time for which others kept a thread of this process from running, at most.

        A thread that waits because another process runs waits no longer than that process runs. Where the system does
        not tell who waited, it is the share of all processors that others had. None: not known.
        """
        if self.waited is None:
            return None if self.others is None else min(self.others / max(self.processors, 1), 1.0)
        return min(self.waited, 1.0 if self.others is None else self.others, 1.0)

    @property
    def disturbed(self) -> bool:
        """Whether others are known to have had so much that what was timed meanwhile is off by it."""
        return self.others is not None and (self.lost or 0.0) >= DISTURBED

    def in_words(self) -> str:
        """What others had, as a clause; how long a thread waited, where only that is known; "" where it is little."""
        said = []
        if self.others is not None and self.others >= DISTURBED:
            of = f"the {self.processors} processors" if self.processors > 1 else "the only processor"
            said.append(f"other processes had {self.others:.1f} of {of}")
        elif self.others is None and self.waited is not None and self.waited >= DISTURBED:
            said.append(self.wait_in_words())
        if self.throttled is not None and self.throttled >= DISTURBED:
            said.append(f"the control group held this process back in {units.percent(self.throttled)} of its periods")
        if self.device is not None and self.device >= DISTURBED:
            said.append(f"other processes used the GPU {units.percent(self.device)} of the time")
        return ", and ".join(said)

    def wait_in_words(self) -> str:
        """How long a thread of this process waited, as a clause."""
        return f"a thread of this program waited {units.percent(self.waited)} of the time for a processor"
