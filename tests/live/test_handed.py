"""Steps that were once told to compile, or something false, as they were handed over: the cause is named at its line
among the first three findings, and the mended form is silent of it.

Of NEG_item_cpu nothing is to be said.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gobrrr.model.diagnosis import Diagnosis, Finding  # noqa: E402
from tests.conftest import ROOT  # noqa: E402
from tests.live.look import diagnosed  # noqa: E402

STEPS = ROOT.parent / "shared" / "faults" / "live"
pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,  # bench/cases has these faults in other programs, which CI runs
    pytest.mark.filterwarnings("ignore"),  # the steps' own
    pytest.mark.skipif(not STEPS.is_dir(), reason="the steps are not beside this checkout"),
]
TABLE = (
    ("autocast", "M04", (7,), "no-autocast"),
    ("clipitem", "O02", (8,), "read-once"),
    ("gccollect", "O07", (9,), "gc-freeze"),
    ("itemloader", "D01", (8,), "index-batch"),
    ("kvcache", "R03", (23,), "kv-cache"),
    ("listofarrays", "O13", (7,), "free-host"),
    ("masksample", "C07", (6,), "other-form"),
    ("pipe_write.py", "O13", (6, 8), "free-host"),  # which answers: no report (O12); it may run as soon as it is asked
    ("wait_then_write.py", "O13", (5,), "free-host"),
    ("write_then_work.py", "O13", (6, 10), None),  # its loop, or the call; nobody knows what it is there for
    ("double_by_accident.py", "C04", (24,), "cast-at-source"),
)
"""The step, the condition, the line in its file (or one of two), the remedy."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def step_of(file: Path) -> Callable[[], Any]:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    step: Callable[[], Any] = module.step
    return step


def forms(name: str) -> tuple[Path, Path | None]:
    """The files of the faulty and of the mended form; None where there is no mended one."""
    at = STEPS / name
    return (at / "sick.py", at / "fixed.py") if at.is_dir() else (at, None)


def named(found: Diagnosis, code: str, file: Path, lines: tuple[int, ...]) -> Finding | None:
    """The finding, if it is among the first three and its first place is one of the lines."""
    at = tuple(f"{file.name}({line}): " for line in lines)
    first = (one for one in found.findings[:3] if one.code == code)
    return next((one for one in first if os.path.basename((one.where[0].source or "")).startswith(at)), None)


def twice(says: Callable[[], bool]) -> bool:
    """At the first look, or at two of three: a machine that is shared can stall any one step."""
    return says() or (says() and says())


@pytest.mark.parametrize(
    ("name", "code", "lines", "remedy"),
    TABLE,
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_the_cause_is_named_at_its_line_and_the_mended_form_is_silent_of_it(
    name: str, code: str, lines: tuple[int, ...], remedy: str | None
) -> None:
    sick, mended = forms(name)

    def says() -> bool:
        found = diagnosed(step_of(sick))
        one = named(found, code, sick, lines)
        remedies = {None, *(each.treatment for each in found.prescriptions)}
        return one is not None and remedy in remedies and all(each.code != "O12" for each in found.findings)

    assert twice(says)
    if mended is not None:
        assert twice(lambda: all(one.code != code for one in diagnosed(step_of(mended)).findings))


@pytest.mark.parametrize("form", ["sick", "fixed"])
def test_nothing_is_said_of_a_read_that_nothing_waits_for(form: str) -> None:
    found = diagnosed(step_of(STEPS / "NEG_item_cpu" / f"{form}.py"))
    assert not {"O02", "O13"} & {one.code for one in found.findings}
