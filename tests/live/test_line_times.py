"""Which line of a function has the time that no frame of a profiler tells of, and what it calls there."""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest

pytest.importorskip("torch")

from gobrrr.observe.live.watches.calls import CallWatch

GENERATOR = np.random.RandomState(0)


def compiled_code():
    size = 100_000
    GENERATOR.normal(size=size)
    return sorted([2, 1])


def python_of_its_own():
    total = 0
    for at in range(20_000):
        total += at
    return total


def a_built_in_function():
    time.sleep(0.002)


def watched(step):
    watch = CallWatch()
    watch.open()
    try:
        step()
    finally:
        watch.close()
    return {one.caller.rpartition(": ")[2]: one for one in watch.own()}


def line(one, step):
    number = one.source.rpartition("): ")[0].rpartition("(")[2]
    return int(number) - step.__code__.co_firstlineno


def test_compiled_code_without_a_frame_is_named_with_its_line():
    one = watched(compiled_code)["compiled_code"]
    assert line(one, compiled_code) == 2
    assert one.callee == "normal"


def test_python_of_the_program_itself_calls_nothing():
    one = watched(python_of_its_own)["python_of_its_own"]
    assert one.source is None or line(one, python_of_its_own) in (2, 3)
    assert one.callee == ""


def test_what_a_profiler_has_a_frame_for_is_no_time_of_the_function_itself():
    assert "a_built_in_function" not in watched(a_built_in_function)


def test_nothing_stays_behind_and_a_program_that_traces_keeps_its_function():
    watched(python_of_its_own)
    assert sys.gettrace() is None

    def theirs(frame, event, argument):
        return None

    sys.settrace(theirs)
    try:
        assert watched(compiled_code) == {}
        assert sys.gettrace() is theirs
    finally:
        sys.settrace(None)
