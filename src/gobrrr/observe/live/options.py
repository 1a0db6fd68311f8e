"""How many steps a live run looks at."""

from __future__ import annotations

from dataclasses import dataclass

from gobrrr.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """How many steps are looked at: after warm-up 1 + `window` without the profiler, 1 + `profiled` with it, and three.

    The warm-up takes at least `warmup` steps. It ends when nothing is compiled any more and steps get no faster, at the
    latest after `most_warmup` steps or `most_warmup_s` seconds. A window ends early after `window_s` seconds, profiling
    after `profiled_s`. `look`: also look at three steps for waits, operations and repeated work.
    """

    warmup: int = 3
    most_warmup: int = 20
    most_warmup_s: float = 60.0
    window: int = 10
    window_s: float = 10.0
    profiled: int = 5
    profiled_s: float = 5.0
    look: bool = True

    @property
    def most(self) -> int:
        """The most steps that looking takes: warm-up, 1 + `window`, 1 + `profiled`, and three."""
        return self.most_warmup + self.window + self.profiled + 5

    def __post_init__(self) -> None:
        if self.window < 2 or self.profiled < 1 or self.warmup < 0:
            raise UsageError("a window needs two steps, a profile one, and a warm-up none or more")
