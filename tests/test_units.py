"""Text for people, against literals; and the laws: unknown is "?", and nothing but 0 reads as 0."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr import units

FINITE = st.floats(min_value=-1e24, max_value=1e24, allow_nan=False).filter(
    lambda value: value == 0 or abs(value) > 1e-9
)


@pytest.mark.parametrize(
    ("n", "one", "told"),
    [(1, "round", "1 round"), (3, "launch", "3 launches"), (2, "copy of weights", "2 copies of weights"),
     (0, "process", "0 processes"), (2, "delay", "2 delays"), (None, "wait", "? waits")],
)  # fmt: skip
def test_things_are_one_or_many(n: float | None, one: str, told: str) -> None:
    assert units.things(n, one) == told


@pytest.mark.parametrize(
    ("n", "one", "told"),
    [(2 / 3, "", "2 in 3 steps"), (0.2, "wait", "1 wait in 5 steps"), (1, "wait", "1 wait a step"),
     (12, "", "12 a step"), (4 / 3, "copy", "1.33 copies a step"), (0, "", "0 a step"),
     (0.12345, "", "0.123 a step")],
)  # fmt: skip
def test_a_mean_under_one_is_told_in_whole_steps(n: float, one: str, told: str) -> None:
    assert units.a_step(n, one) == told


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "?"),
        (float("nan"), "?"),
        (float("inf"), "?"),
        (0, "0"),
        (12, "0.0120 us"),
        (999, "0.999 us"),
        (1_000, "1.00 us"),
        (12_345, "12.3 us"),
        (999_900, "1.00 ms"),
        (999_400, "999 us"),
        (0.000772, "<1 ns"),
        (-0.5, ">-1 ns"),
        (1, "0.00100 us"),
        (31_000_000, "31.0 ms"),
        (74_449_000, "74.4 ms"),
        (1_234_000_000, "1.23 s"),
        (4_321_000_000_000, "4,320 s"),
        (-1_500_000, "-1.50 ms"),
    ],
)
def test_duration(ns: float | None, text: str) -> None:
    assert units.duration(ns) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (12_100_000, 15_300_000, "12.1 to 15.3 ms"),
        (900_000, 2_100_000, "0.90 to 2.10 ms"),
        (0, 15_300_000, "0 to 15.3 ms"),
        (1_000, 15_300_000, "<0.1 to 15.3 ms"),
        (-1_000, 15_300_000, ">-0.1 to 15.3 ms"),
        (12_310_000, 12_340_000, "12.3 ms"),
        (0, 0, "0"),
        (None, 15_300_000, "? to 15.3 ms"),
        (0, 8.3e-7, "0 to <1 ns"),
        (1e-7, 8.3e-7, "<1 ns"),
        (-0.5, 0.5, ">-1 to <1 ns"),
        (None, None, "?"),
        (-20_000_000, 3_000_000, "-20.0 to 3.0 ms"),
    ],
)
def test_duration_range(low: float | None, high: float | None, text: str) -> None:
    assert units.duration_range(low, high) == text


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (None, "?"),
        (0, "0 B"),
        (1, "1 B"),
        (999, "999 B"),
        (999.6, "1.00 kB"),
        (85_017_493_504, "85.0 GB"),
        (268_435_456, "268 MB"),
    ],
)
def test_bytes(n: float | None, text: str) -> None:
    assert units.bytes_(n) == text


def test_flop_and_rates() -> None:
    assert units.flop(2 * 4096**3) == "137 GFLOP"
    assert units.flop(None) == "?"
    assert units.rate(3.35e12) == "3.35 TB/s"
    assert units.rate(989.4e12, "FLOP") == "989 TFLOP/s"
    assert units.rate(None, "FLOP") == "?"
    assert units.rate(0) == "0 B/s"


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (None, "?"),
        (0, "0 %"),
        (0.0001, "<0.1 %"),
        (0.042, "4.2 %"),
        (0.0996, "10 %"),
        (0.42, "42 %"),
        (0.996, "99.6 %"),
        (0.99999, ">99.9 %"),
        (1, "100 %"),
        (1.23, "123 %"),
        (-0.042, "-4.2 %"),
    ],
)
def test_percent(share: float | None, text: str) -> None:
    assert units.percent(share) == text


@pytest.mark.parametrize(("n", "text"), [(None, "?"), (0, "0"), (1848, "1,848"), (12.5, "12.5"), (1848.0, "1,848")])
def test_count(n: float | None, text: str) -> None:
    assert units.count(n) == text


@given(FINITE)
def test_only_zero_reads_as_zero(value: float) -> None:
    for text in (
        units.duration(value),
        units.bytes_(value),
        units.flop(value),
        units.percent(value),
        units.count(value),
    ):
        assert (re.search(r"[1-9]", text) is None) == (value == 0), text


@given(FINITE.filter(lambda value: abs(value) >= 1))
def test_duration_reads_back_within_three_digits(ns: float) -> None:
    number, unit = units.duration(ns).split()
    scale = {"us": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert float(number.replace(",", "")) * scale == pytest.approx(ns, rel=0.005)


@given(FINITE, FINITE)
def test_a_range_names_one_unit(low: float, high: float) -> None:
    text = units.duration_range(min(low, high), max(low, high))
    assert text == "0" or len(re.findall(r"\b(?:ns|us|ms|s)\b", text)) == 1


ALWAYS_MANY = {
    "model/soundness.py", "model/contention.py", "conditions/o09_thread_oversubscription.py",
    "conditions/r04_growing_work.py", "report/page/verdict.py", "report/terminal.py", "report/calc.py",
    "report/words.py", "report/doing.py", "report/demo.py", "observe/static/recorder.py",
    "observe/live/loops/step_sites.py",
    "observe/folder.py", "treatments/compile.py", "envelope/problems.py", "hardware/ceilings.py", "hardware/match.py",
    "hardware/measure/observer.py", "hardware/measure/links.py", "hardware/measure/host.py", "trials/doubts.py",
    "trials/numerics.py", "analysis/answer/caveats.py", "analysis/answer/representative.py",
    "cost/traffic.py", "conditions/o03_per_parameter_optimizer.py",
}  # fmt: skip
"""Files in which a number before a plural is a constant, a rate, an "of many", or is told only of several."""

COUNTED = re.compile(
    r"\{[^{}]*\} (?:more |other )?(?:steps|rounds|calls|runs|turns|kernels|trials|files|ranks|places|findings|"
    r"conditions|remedies|notes|operations|tensors|threads|processes|launches|processors|GPUs|devices|streams|pieces|workers|"
    r"graphs|breaks|waits|repeats|traces|containers|updates)\b"
)


def test_what_is_counted_is_told_by_things() -> None:
    """ "1 rounds" can't be read: `units.things` knows one from many."""
    home = Path(units.__file__).parent
    found = {
        str(one.relative_to(home).as_posix()) for one in home.rglob("*.py") if COUNTED.search(one.read_text("utf-8"))
    }
    assert found <= ALWAYS_MANY
