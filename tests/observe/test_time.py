"""How long reading takes: a floor under the speed, and inputs on which a careless reader takes quadratic time."""

from __future__ import annotations

import contextlib
import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gobrrr.errors import GobrrrError
from gobrrr.observe import shards
from gobrrr.observe.trace import read_trace
from tests.observe.traces import kernel, launch, op, rows

pytestmark = pytest.mark.slow
MB = 1 << 20
EVENT = b'{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2}'
OTHER = EVENT.replace(b'"ts": 1', b'"ts": 9')
OPEN = b'{"traceEvents": ['


def many_events(megabytes: int) -> bytes:
    once = [
        event for n in range(1000) for event in (op(ts=n), launch(ts=n, correlation=n), kernel(ts=n, correlation=n))
    ]
    text = json.dumps(once)[1:-1].encode()
    times = megabytes * MB // len(text) + 1
    shifted = (text.replace(b'"dur": ', b'"dur": %d' % n) for n in range(1, times + 1))  # no two events are equal
    return OPEN + b", ".join(shifted) + b'], "deviceProperties": [{"name": "x"}]}'


@pytest.mark.parametrize("pack", [bytes, lambda data: gzip.compress(data, 1)], ids=["plain", "gzip"])
def test_events_a_second(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path, data = tmp_path / "t.bin", many_events(30)
    path.write_bytes(pack(data))
    started = time.perf_counter()
    profile = read_trace(path)
    took = time.perf_counter() - started
    events = len(profile.ranks[0].events)
    assert events == data.count(b'"ph"')
    assert profile.notes == ()
    assert events / took > 100_000, "a two-core machine reads about 450,000 in one process"


def test_two_processes_on_a_large_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(many_events(10))
    alone = rows(read_trace(path).ranks[0].events)
    monkeypatch.setattr(shards, "WORTH_IT_BYTES", 1)
    reading = shards.read_in_parallel(str(path), python=False, progress=None)
    assert reading is not None
    assert len(reading.parts) == 2
    assert rows(read_trace(path).ranks[0].events) == alone


def nested(megabytes: int) -> bytes:
    return (
        EVENT.replace(b'"ts": 1', b'"ts": 5')[:-1]
        + b', "args": {"x": ['
        + b", ".join([b'{"a": [1, {"b": 2}]}'] * (megabytes * MB // 22))
        + b"]}}"
    )


HOSTILE: dict[str, tuple[Callable[[], bytes], int | None, float]] = {
    # what: (its bytes, the events in it or None where it must be refused, seconds allowed)
    "JSON without events": (lambda: b'{"x": [' + b'"some text", ' * (200 * MB // 13) + b"0]}", None, 10),
    "blanks": (lambda: b" " * (100 * MB), None, 5),
    "zeros": (lambda: b"\0" * (100 * MB), None, 5),
    "text": (lambda: b"some text } , { " * (100 * MB // 16), None, 5),
    "one large event": (lambda: OPEN + EVENT + b", " + nested(25) + b", " + OTHER + b"]}", 3, 20),
    "one long name": (lambda: OPEN + EVENT.replace(b'"k"', b'"%b"' % bytes(50 * MB)) + b", " + OTHER + b"]}", 2, 10),
    "garbage in the list": (lambda: OPEN + EVENT + b", some text } , { " * (100 * MB // 18) + b"]}", 1, 20),
    "open brackets": (lambda: OPEN + EVENT + b", {" * (100 * MB // 3), 1, 20),
    "open nested events": (lambda: OPEN + EVENT + b', {"a": [1' * (50 * MB // 10), 1, 30),
    "a string without end": (lambda: OPEN + EVENT + b', {"a": "' + b"}, { " * (60 * MB // 5), 1, 30),
    "every event damaged": (lambda: OPEN + EVENT + (b", " + EVENT[:-1] + b"x}") * (20 * MB // 80), 1, 30),
    "every event refused by a strict decoder": (
        lambda: OPEN + b", ".join(EVENT[:-1] + b', "args": 1, "ts": %d}' % n for n in range(99_999)) + b"]}", 99_999, 20
    ),
    "a long suffix": (lambda: OPEN + EVENT + b'], "x": [' + b'{"a": 1}, ' * (100 * MB // 10) + b"0]}", 1, 20),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_no_input_takes_quadratic_time(tmp_path: Path, what: str) -> None:
    make, events, allowed_s = HOSTILE[what]
    path = tmp_path / "t.json"
    path.write_bytes(make())
    started = time.perf_counter()
    found = None
    with contextlib.suppress(GobrrrError):
        found = len(read_trace(path).ranks[0].events)
    took = time.perf_counter() - started
    path.unlink()
    assert found == events
    assert took < allowed_s


def test_a_bomb_of_blanks_stays_small(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(OPEN + b" " * (300 * MB) + EVENT + b"]}", 9))
    assert len(read_trace(path).ranks[0].events) == 1
