"""A process of its own for the steps: what hangs, crashes or is killed there ends one trial and not the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gobrrr.errors import UsageError
from gobrrr.model.treated import Numerics, TrialRecord
from gobrrr.trials import messages
from gobrrr.trials.choosing import SearchOptions
from gobrrr.trials.pace import TrialTime
from gobrrr.trials.remote import ChildRunner, how_it_ended, spoilt
from gobrrr.trials.treat import treat
from gobrrr.trials.worker import Worker
from tests.trials.benches import candidate

pytest.importorskip("torch")
from gobrrr.observe.live.pull import loaded_as_before

pytestmark = pytest.mark.torch

OWN = """
import os, signal, sys, time
from contextlib import contextmanager
from dataclasses import replace
import torch
import gobrrr
from gobrrr.doors import live
from gobrrr.trials import candidates
from gobrrr.treatments.framework.base import Treatment
from gobrrr.treatments.framework.way import TreatmentWay

live._measure_once = lambda stages: None

def way(name, step, **more):
    @contextmanager
    def apply(workload, kept):
        yield replace(workload, step=step)
    one = TreatmentWay(name=name, treatment=name, apply=apply, code=f"{name}()", numerics="none", rank=0, **more)
    return Treatment(name, name, name, "", "none", lambda *_: None, lambda workload: iter([one]))

def hang(): time.sleep(1e6)
def leave(): print("an odd last word", file=sys.stderr, flush=True); os._exit(3)
def killed(): os.kill(os.getpid(), signal.SIGKILL)
def step(): time.sleep(0.004); return x.sum()
def quick(): time.sleep(0.001); return x.sum()
x = torch.ones(3)

TREATMENTS = (way("hangs", hang), way("leaves", leave), way("quick", quick), way("killed", killed))
candidates.catalogue = lambda: TREATMENTS
print("what the user prints is no message")
"""


def target(folder: Path, name: str, more: str = "") -> str:
    (folder / "w.py").write_text(OWN + more)
    return f"{folder / 'w.py'}:{name}"


@pytest.mark.slow  # a process for each that dies
def test_a_hang_a_crash_and_a_kill_end_their_trials_and_the_run_goes_on(tmp_path: Path) -> None:
    more = "\ndef workload():\n    return gobrrr.Workload(step=step)\n"
    begin = time.monotonic()
    found = treat(
        target(tmp_path, "workload", more), SearchOptions(budget_s=250, seconds=0.5), ledger=tmp_path / "l", limit_s=5.0
    )
    by_way = {one.way: one for one in found.trials}
    assert list(by_way) == ["hangs", "leaves", "quick", "killed"]
    assert {one.verdict for way, one in by_way.items() if way != "quick"} == {"inconclusive"}
    assert by_way["hangs"].why == "the process hung: nothing was heard of it for 5 s"
    assert by_way["leaves"].why == "the process ended with status 3 (its last line: an odd last word)"
    assert "signal 9 (killed: out of memory?)" in by_way["killed"].why
    assert by_way["killed"].kept == ("quick",)  # the new process applied again what was kept
    assert by_way["quick"].verdict == "helped"
    assert found.kept == ("quick",)
    assert time.monotonic() - begin < 200
    assert "torch" not in _loaded_by_treating()


def _loaded_by_treating() -> set[str]:
    """What the process that searches loads."""
    code = "import sys, gobrrr.trials.treat; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


PLAIN = "import gobrrr\n"


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("broken", "def broken():\n    raise RuntimeError('no data')\n",
         "broken failed at w.py:3: RuntimeError: no data"),
        ("nothing", "def something(): pass\n", "has no nothing; it has"),
        ("none", "".join(f"def f{at}(): pass\n" for at in range(20)), "f11 and 8 more"),
        ("needs", "def needs(a):\n    pass\n", "is called without arguments"),
        ("module", "import torch\nmodule = torch.nn.Linear(1, 1)\n", "missing a required argument"),
        ("Stepper", "class Stepper:\n    def __call__(self):\n        pass\n", "is a class: a call of it makes"),
        ("makes", "import torch\ndef makes():\n    return torch.nn.Linear(1, 1)\n", "ran no step"),
        ("late", "def step():\n    raise ValueError('too late')\ndef late():\n"
         "    return gobrrr.Workload(step=step)\n", "late failed at w.py:3: ValueError: too late"),
        ("leaves", "import sys\ndef leaves():\n    sys.exit(4)\n", "SystemExit: 4"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_target_is_said_in_one_line(tmp_path: Path, name: str, more: str, said: str) -> None:
    (tmp_path / "w.py").write_text(PLAIN + more)
    answers: list[messages.Answer] = []
    with loaded_as_before():
        worker = Worker(answers.append)
        worker.answer(messages.OpenRequest(f"{tmp_path}/w.py:{name}"))
        if isinstance(answers[-1], messages.OpenedAnswer):
            worker.answer(messages.DiagnoseRequest((), 100.0, 0.0))
    last = answers[-1]
    assert isinstance(last, messages.RefusedAnswer)
    assert said in last.why
    assert not last.bug
    assert "\n" not in last.why


def test_a_process_that_dies_while_it_loads_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="dead: while it was loaded, the process ended with status 3") as caught:
        treat(target(tmp_path, "dead", "\ndead = leave\n"), SearchOptions(), ledger=tmp_path / "l")
    assert "\n" not in str(caught.value)


def test_a_message_comes_back_as_it_was_sent() -> None:
    sent: list[messages.Answer] = [
        messages.ProgressMessage("timing", 1, 2),
        messages.RefusedAnswer("no"),
        messages.OpenedAnswer(),
    ]
    assert [messages.answer(messages.encode(one).rstrip()) for one in sent] == sent
    asked = messages.TrialRequest(("a",), candidate("b"), TrialTime(seconds=2.0, within_s=20.0))
    assert messages.request(messages.encode(asked)) == asked


def test_a_child_ends_with_the_process_that_asked(tmp_path: Path) -> None:
    remote = ChildRunner(target(tmp_path, "step"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote, "_answered", lambda *_: None)
        remote._start()
    child = remote._child
    assert child is not None
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(timeout=20) == 0
    remote.close()


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (3, "the process ended with status 3"),
        (-signal.SIGKILL, "the process died: signal 9 (killed: out of memory?)"),
        (-signal.SIGTERM, "the process died: signal 15"),
        (None, "the process closed its pipe"),
    ],
)
def test_an_end_is_told_in_words(status: int | None, said: str) -> None:
    assert how_it_ended(status) == said


@pytest.mark.parametrize(
    ("why", "changes", "expected"),
    [
        ("a failed: RuntimeError: CUDA error: an illegal memory access", {}, True),
        ("out of memory with a: OutOfMemoryError", {}, True),
        ("a can't be applied: no", {}, False),
        ("the numbers can't be compared: no", {"numerics": Numerics(reference="none", ok=None)}, False),
        ("fine, but the workload may be changed", {"verdict": "helped"}, True),
    ],
)
def test_a_process_is_left_where_an_error_may_have_spoilt_it(why: str, changes: Any, expected: bool) -> None:
    given = {"way": "a", "treatment": "a", "kept": (), "verdict": "inconclusive", "why": why, **changes}
    assert spoilt(TrialRecord(**given)) is expected


def test_what_needs_a_process_of_its_own_shares_it_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    remote, closed = ChildRunner("w.py:w"), []
    monkeypatch.setattr(remote, "close", lambda: closed.append(1))
    remote._fresh = {"f"}
    for names, so_far in ((["a"], 0), (["a", "f"], 1), (["f"], 2), (["a"], 3), (["b"], 3)):
        remote._renew_for(names)
        assert len(closed) == so_far


def test_no_child_is_left_behind(tmp_path: Path) -> None:
    remote = ChildRunner(target(tmp_path, "step"))
    remote._start()
    child = remote._child
    assert child is not None
    remote.close()
    assert child.poll() is not None
    with pytest.raises(ProcessLookupError):
        os.killpg(child.pid, 0)
