"""The process that runs the steps of a named target: it answers requests, and ends when their pipe closes.

Messages use pipes of their own: the user's code prints to standard error, and reads an empty standard input.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import IO

from gobrrr.errors import GobrrrError, UsageError
from gobrrr.report import failures
from gobrrr.trials import messages

QUIET_S = 0.1
"""Seconds between two progress messages within a stage, at least."""


def main(debug: bool = False) -> None:
    """Answer requests until the pipe ends. `debug`: show tracebacks of errors in gobrrr."""
    if debug:
        failures.show_tracebacks()
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    asked: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    requests = os.fdopen(os.dup(0), "rb")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    # the pipe closes when the asking process ends, however it ends, so that nothing is left running
    threading.Thread(target=_listen, args=(requests, asked), daemon=True).start()
    worker = Worker(lambda message: _write(answers, messages.encode(message)))
    while True:
        worker.answer(messages.request(asked.get()))


def _listen(requests: IO[bytes], asked: queue.SimpleQueue[bytes]) -> None:
    for line in requests:
        asked.put(line)
    os._exit(0)


def _write(answers: IO[bytes], data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[answers.write(left) or 0 :]


class Worker:
    """Answers requests; `say` sends the answers."""

    def __init__(self, say: Callable[[messages.Answer], None]) -> None:
        self._say = say
        self._bench: object | None = None
        self._target = ""
        self._told = ("", 0.0)

    def answer(self, request: messages.Request) -> None:
        """Carry out a request and send the answer; raises nothing."""
        try:
            self._say(self._answer(request))
        except GobrrrError as error:
            self._say(messages.RefusedAnswer(str(error)))
        except (Exception, SystemExit) as error:
            traceback.print_exception(error)
            self._say(self._failed(error))

    def _failed(self, error: BaseException) -> messages.RefusedAnswer:
        """An error in one line: the user's errors with their place, gobrrr's own with their kind."""
        from gobrrr.doors import live
        from gobrrr.report.text import sanitise

        said = live.users_error(sanitise(self._target), error)
        if said is not None:
            return messages.RefusedAnswer(said)
        return messages.RefusedAnswer(f"{type(error).__name__}: {str(error)[:500]}", bug=True)

    def _answer(self, request: messages.Request) -> messages.Answer:
        from gobrrr.doors import live

        if isinstance(request, messages.OpenRequest):
            self._target = request.target
            if not live.has_torch():
                raise UsageError("a live run needs torch: pip install torch")
            from gobrrr.trials.bench import LocalRunner, load

            self._bench = LocalRunner(load(request.target), request.target, alone=True, stages=self._tell)
            return messages.OpenedAnswer()
        from gobrrr.trials.bench import LocalRunner

        assert isinstance(self._bench, LocalRunner)
        if isinstance(request, messages.DiagnoseRequest):
            return messages.DiagnosisAnswer(self._bench.look(request.kept, request.within_s, request.spent_s))
        if isinstance(request, messages.JoinTrialRequest):
            return messages.TrialAnswer(self._bench.together(request.kept, request.allowed))
        record = self._bench.trial(request.kept, request.way, request.allowed, request.instead_of)
        return messages.TrialAnswer(record)

    def _tell(self, stage: str, done: int, total: int) -> None:
        """Send progress, which also shows that the process is alive."""
        last, at = self._told
        now = time.monotonic()
        if stage != last or now - at >= QUIET_S:
            self._told = (stage, now)
            self._say(messages.ProgressMessage(stage, done, total))


if __name__ == "__main__":
    sys.exit(main())  # type: ignore[func-returns-value]
