"""Which line of the program makes each call of a step."""

from __future__ import annotations

import os
import sys
import threading
import time

import pytest

torch = pytest.importorskip("torch")

from gobrrr.analysis.places.lines import MODULE_CALL  # noqa: E402
from gobrrr.observe.live.ops.dispatch import looking  # noqa: E402
from gobrrr.observe.live.watches import calls  # noqa: E402
from gobrrr.observe.live.watches.calls import CallWatch, code_of  # noqa: E402


def helper():
    time.sleep(0)
    return sorted([2, 1])


def step():
    helper()
    time.sleep(0)
    helper()


def watched():
    watch = CallWatch()
    watch.open()
    try:
        step()
    finally:
        watch.close()
    return watch.found()


def test_each_call_has_its_caller_its_name_and_its_line():
    first = step.__code__.co_firstlineno
    mine = [one for one in watched() if one.caller.endswith(f"({first}): step")]
    assert [one.callee for one in mine] == ["helper", "sleep", "helper"]
    assert [int(one.source.rpartition("): ")[0].rpartition("(")[2]) - first for one in mine] == [1, 2, 3]
    inner = [one.callee for one in watched() if one.caller.endswith(": helper")]
    assert inner == ["sleep", "sorted"] * 2


def test_a_program_with_a_profile_function_keeps_it():
    def theirs(frame, event, argument):
        return None

    sys.setprofile(theirs)
    try:
        assert watched() == ()
        assert sys.getprofile() is theirs
    finally:
        sys.setprofile(None)


def test_nothing_stays_behind():
    watched()
    assert sys.getprofile() is None


def test_closed_from_another_thread_it_ends_at_the_next_call():
    watch = CallWatch()
    watch.open()
    try:
        closing = threading.Thread(target=watch.close)
        closing.start()
        closing.join()
        step()
        assert sys.getprofile() is None
    finally:
        sys.setprofile(None)


def test_a_step_with_very_many_calls_is_followed_no_further(monkeypatch):
    monkeypatch.setattr(calls, "MOST_LINES", 3)
    assert len(watched()) == 3
    assert sys.getprofile() is None


def test_the_code_of_a_line_is_what_stands_there():
    line = step.__code__.co_firstlineno + 1
    source = f"{__file__}({line}): step"
    assert code_of({source, "gone.py(3): f", "no line"}) == {source: "helper()"}


def test_a_step_that_is_looked_at_has_the_lines_of_its_calls():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))

    def forward():
        model(torch.ones(1, 2))

    with looking() as one:
        forward()
    seen = one.seen.recording()
    mine = [call for call in seen.lines if call.caller.endswith(": forward") and __file__ in call.caller]
    assert MODULE_CALL in [call.callee for call in mine]
    assert {seen.code[call.source] for call in mine} == {"model(torch.ones(1, 2))"}


def test_a_file_object_that_another_process_reads_is_known_by_its_descriptor(tmp_path):
    reader, writer = os.pipe()
    with os.fdopen(reader) as other, os.fdopen(writer, "w") as piped, open(tmp_path / "log", "w") as log:
        watch = CallWatch()
        watch.open()
        try:
            for one in (piped, log, sys.stderr):
                one.write("step\n")
                one.flush()
            other.readline()
        finally:
            watch.close()
        assert watch.streams == {hex(id(one)): "pipe" for one in (piped, other)}
