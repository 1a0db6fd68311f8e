"""Runs the steps in a separate process: a hang, a crash or a kill there ends one trial, not the search. Needs no
torch."""

from __future__ import annotations

import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO

from msgspec.structs import replace

from gobrrr.errors import UsageError
from gobrrr.guarded import LOG
from gobrrr.model.treated import TrialRecord
from gobrrr.report import failures
from gobrrr.trials import messages
from gobrrr.trials.candidate import Candidate
from gobrrr.trials.candidates import StepOverview
from gobrrr.trials.looking import enough
from gobrrr.trials.pace import GRACE_SHARE, UNDECIDED, Stages, TrialTime
from gobrrr.trials.search import TOGETHER, WORKLOAD_CHANGED, ProcessDied, ProcessTooSlow

SILENCE_LIMIT_S = 120.0
"""Seconds of silence after which a trial counts as hung, unless its step is long. Chosen, not measured."""

SILENCE_LIMIT_STEPS = 500
"""The same in steps: 20 times the 25 steps that a diagnosis takes."""

COMPILING_LIMIT_FACTOR = 3.0
"""How many times as long a trial that compiles may be silent. Chosen, not measured."""

START_S = 600.0
"""Seconds that loading a workload, and its first step, may take. Chosen, not measured."""

POLL_S = 0.2
"""Seconds between two checks whether the child is alive."""
HINTS = {9: "killed: out of memory?", 11: "a crash in native code", 6: "it aborted"}
"""The usual causes of these signals."""

MOST_LINE_CHARACTERS = 160
"""Characters of the child's last line that a message shows."""

Request = Callable[[float], messages.Request]
"""Makes a request from the seconds that are left for it."""

_START = "import sys; sys.path[:] = {path!r}; from gobrrr.trials.worker import main; main({debug})"
"""The child's program."""


class ChildRunner:
    """Runs the steps of a named target in a child process. `limit_s`: the longest silence within a trial.

    A call that exceeds its time by more than `GRACE` of the budget is ended with its process.
    """

    renews = True

    def __init__(
        self, target: str, *, budget_s: float = math.inf, limit_s: float | None = None, stages: Stages | None = None
    ) -> None:
        self._target, self._own_limit, self._stages = target, limit_s, stages
        self._grace_s, self._start_s = GRACE_SHARE * budget_s, 0.0
        self._stage = ""
        self._child: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._buffer = b""
        self._step_s = 0.0
        self._fresh: set[str] = set()
        self._compiling: set[str] = set()
        self._begun = self._stale = False

    @property
    def start_s(self) -> float:
        """The seconds that starting the process and loading the workload took."""
        return self._start_s

    @property
    def down(self) -> bool:
        """Whether the next call has to start a process."""
        return self._child is None or self._stale

    def look(self, kept: Sequence[str], within_s: float = math.inf, spent_s: float = 0.0) -> StepOverview:
        """Diagnose the step. Raises UsageError where the target can't be loaded, its step fails or the time is too
        short; Died where the process dies or takes too long after the step has run once."""
        self._renew_for(kept)

        def request(left_s: float) -> messages.Request:
            return messages.DiagnoseRequest(tuple(kept), left_s, spent_s + within_s - left_s)

        try:
            answer = self._ask(request, START_S if not self._begun else self._limit(compiles=True), within_s)
        except ProcessTooSlow as late:
            if self._begun:
                raise
            more = f"--budget {enough(2 * (spent_s + within_s)):g} gives it twice as long"
            why = f"the budget is too short for the first diagnosis: {late}; {more}"
            raise UsageError(f"{self._target}: {why}") from None
        except ProcessDied as died:
            if self._begun:
                raise
            raise UsageError(f"{self._target}: while the step was diagnosed, {died}") from None
        if isinstance(answer, messages.RefusedAnswer):
            if self._begun:
                raise ProcessDied(answer.why)
            raise self._refusal(answer)
        assert isinstance(answer, messages.DiagnosisAnswer)
        looked = answer.looked
        if not self._begun and looked.step_ns is not None:
            self._step_s = looked.step_ns / 1e9
        self._begun = True
        self._fresh |= {candidate.way for candidate in looked.candidates if candidate.fresh}
        self._compiling |= {candidate.way for candidate in looked.candidates if candidate.compiles}
        return looked

    def trial(self, kept: Sequence[str], way: Candidate, allowed: TrialTime, instead_of: str = "") -> TrialRecord:
        """One trial. Where the process dies, hangs or refuses, it is inconclusive, with the reason."""
        compiles = way.compiles or bool(self._compiling & set(kept))  # each arm compiles for itself
        lost = TrialRecord(
            way=way.way, treatment=way.treatment, kept=tuple(kept), verdict="inconclusive", why="", work=way.work,
            instead_of=instead_of, members=way.members, leaves_out=way.leaves_out,
        )  # fmt: skip

        def request(left_s: float) -> messages.Request:
            return messages.TrialRequest(tuple(kept), way, replace(allowed, within_s=left_s), instead_of)

        return self._tried(request, [*kept, way.way, *way.members], compiles, allowed.within_s, lost)

    def together(self, kept: Sequence[str], allowed: TrialTime) -> TrialRecord:
        """All kept ways at once, against the step as it was."""
        lost = TrialRecord(way=TOGETHER, treatment=TOGETHER, kept=(), verdict="inconclusive", why="")

        def request(left_s: float) -> messages.Request:
            return messages.JoinTrialRequest(tuple(kept), replace(allowed, within_s=left_s))

        return self._tried(request, kept, bool(self._compiling & set(kept)), allowed.within_s, lost)

    def _tried(
        self, request: Request, names: Sequence[str], compiles: bool, within_s: float, lost: TrialRecord
    ) -> TrialRecord:  # fmt: skip
        """The record of a trial, or `lost` with the reason why there is none."""
        begin = time.monotonic()
        self._renew_for(names)
        try:
            answer = self._ask(request, self._limit(compiles=compiles), within_s)
        except ProcessTooSlow as late:
            why = f"{UNDECIDED}: {late}"
            return replace(lost, why=why, late=True, seconds=time.monotonic() - begin)
        except ProcessDied as died:
            return replace(lost, why=str(died), died=True, seconds=time.monotonic() - begin)
        if isinstance(answer, messages.TrialAnswer):
            if spoilt(answer.record):
                self.close()
            return answer.record
        assert isinstance(answer, messages.RefusedAnswer)
        self.close()  # it is not known what it did before it failed
        return replace(lost, why=answer.why, seconds=time.monotonic() - begin)

    def close(self) -> None:
        """End the process and its children; a new one starts when it is needed."""
        child, self._child, self._buffer = self._child, None, b""
        if child is not None:
            _kill(child)
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
        if self._errors is not None:
            LOG.debug("the process that ran the steps wrote:\n%s", self._said())
            self._errors.close()
            self._errors = None

    def _renew_for(self, names: Sequence[str]) -> None:
        """Give a way that needs a process of its own a new one, which no other way uses afterwards."""
        fresh = bool(self._fresh & set(names))
        if fresh or self._stale:
            self.close()
        self._stale = fresh

    def _limit(self, *, compiles: bool) -> float:
        if self._own_limit is not None:
            return self._own_limit
        return max(SILENCE_LIMIT_S, SILENCE_LIMIT_STEPS * self._step_s) * (COMPILING_LIMIT_FACTOR if compiles else 1.0)

    def _refusal(self, answer: messages.RefusedAnswer) -> Exception:
        return RuntimeError(answer.why) if answer.bug else UsageError(answer.why)

    def _ask(self, request: Request, limit_s: float, within_s: float) -> messages.Answer:
        """The answer to a request. Raises Died where the process dies or hangs, Late where the answer is not there in
        time, and UsageError where the target can't be loaded."""
        begin = time.monotonic()
        until = begin + within_s + self._grace_s
        if self._child is None:
            self._start(until)
            self._start_s = time.monotonic() - begin
        return self._answered(request(within_s - (time.monotonic() - begin)), limit_s, until)

    def _start(self, until: float = math.inf) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._child = subprocess.Popen(
            [sys.executable, "-c", _START.format(path=sys.path, debug=failures.tracebacks_shown())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # an interrupt at the terminal goes to this process only, which ends the child
        )
        if self._stages is not None:
            self._stages("loading", 0, 1)
        try:
            answer = self._answered(messages.OpenRequest(self._target), START_S, until)
        except ProcessTooSlow:
            raise
        except ProcessDied as died:
            if self._begun:
                raise
            raise UsageError(f"{self._target}: while it was loaded, {died}") from None
        if isinstance(answer, messages.RefusedAnswer):
            refusal = ProcessDied(answer.why) if self._begun else self._refusal(answer)
            self.close()
            raise refusal

    def _answered(self, request: messages.Request, limit_s: float, until: float = math.inf) -> messages.Answer:
        child, begin = self._child, time.monotonic()
        self._stage = "loading" if isinstance(request, messages.OpenRequest) else ""
        assert child is not None
        assert child.stdin is not None
        try:
            child.stdin.write(messages.encode(request))
            child.stdin.flush()
        except OSError:
            raise self._dead() from None
        while True:
            silent = time.monotonic() + limit_s
            line = self._line(child, min(silent, until))
            if line is None:
                self.close()
                if until > silent:
                    raise ProcessDied(f"the process hung: it gave no sign of life for {limit_s:g} s")
                raise ProcessTooSlow(f"after {time.monotonic() - begin:.0f} s it was still {self._stage or 'running'}")
            answer = messages.answer(line)
            if not isinstance(answer, messages.ProgressMessage):
                return answer
            self._stage = answer.stage.rpartition(": ")[2].partition(" (")[0]
            if self._stages is not None:
                self._stages(answer.stage, answer.done, answer.total)

    def _line(self, child: subprocess.Popen[bytes], until: float) -> bytes | None:
        """The next line; None where there is none by `until`. Notices a death even where a process that the child
        started keeps the pipe open."""
        assert child.stdout is not None
        pipe = child.stdout.fileno()
        while b"\n" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0:
                return None
            gone = child.poll() is not None
            ready, _, _ = select.select([pipe], [], [], 0 if gone else min(POLL_S, left))
            data = os.read(pipe, 1 << 20) if ready else b""
            if (ready and not data) or (gone and not ready):
                raise self._dead()
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _dead(self) -> ProcessDied:
        """The exception that says in one line why the child died."""
        assert self._child is not None
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(timeout=5)
        status = self._child.poll()
        said = [line for line in self._said().splitlines() if line.strip()]
        self.close()
        return ProcessDied(
            how_it_ended(status) + (f" (its last line: {said[-1].strip()[:MOST_LINE_CHARACTERS]})" if said else "")
        )

    def _said(self) -> str:
        """The end of what the child wrote to standard error."""
        if self._errors is None:
            return ""
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), 1 << 16, max(size - (1 << 16), 0)).decode("utf-8", "replace")


def spoilt(record: TrialRecord) -> bool:
    """Whether the process of this trial should not run another one.

    An error within a step may have left the device or the memory in any state; a refusal or a comparison does not.
    """
    if WORKLOAD_CHANGED in record.why:
        return True
    broke = record.verdict == "inconclusive" and record.timing is None and record.numerics is None
    return broke and "can't be applied" not in record.why


def how_it_ended(status: int | None) -> str:
    """An exit status in words."""
    if status is None:
        return "the process closed its pipe"
    if status >= 0:
        return f"the process ended with status {status}"
    hint = HINTS.get(-status)
    return f"the process died: signal {-status}" + (f" ({hint})" if hint else "")


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End a child and the processes that it started, which are one group."""
    with suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    with suppress(OSError):
        child.kill()
    with suppress(subprocess.TimeoutExpired):
        child.wait(timeout=10)
