"""Damaged and changed copies of a public trace: what other tools do with them, and what is right.

The tools are those of test_peers.py. The copies are made in the test; the tests skip where the trace is absent.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gobrrr.api import diagnose
from gobrrr.errors import GobrrrError
from gobrrr.model.diagnosis import Diagnosis
from tests.analysis.tables import diagnosis

BERT = "tracelens/h100__gaunernst_bert-small-uncased__1016001.json.gz"
US, MS = 1e3, 1e6


def derived(path: Path, folder: Path, change: Callable[[dict[str, Any]], None]) -> Diagnosis:
    """The diagnosis of a changed copy."""
    trace = json.loads(gzip.decompress(path.read_bytes()))
    change(trace)
    copy = folder / "derived.json"
    copy.write_text(json.dumps(trace), encoding="utf-8")
    return diagnose(copy)


def on_device(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]


def test_a_kernel_s_wrapper_on_the_host_is_no_kernel(public_traces: Path, tmp_path: Path):
    """H1: HTA counts host operations that carry a `stream` as kernels (a Triton wrapper's): 56 % too much."""

    def give_streams(trace: dict[str, Any]) -> None:
        for event in trace["traceEvents"]:
            if event.get("cat") == "cpu_op":
                event["args"]["stream"] = 7

    assert derived(public_traces / BERT, tmp_path, give_streams).devices == diagnosis(public_traces / BERT).devices


def test_kernels_without_a_launch_are_not_dropped(public_traces: Path, tmp_path: Path):
    """TraceLens: computation 0.000 ms, exit status 0, no warning."""

    def unlink(trace: dict[str, Any]) -> None:
        for event in on_device(trace):
            event["args"].pop("correlation", None)
            event["args"].pop("External id", None)

    found = derived(public_traces / BERT, tmp_path, unlink)
    assert found.devices == diagnosis(public_traces / BERT).devices
    assert any("correlation" in note for note in found.notes)
    assert (found.coverage.device_time or 0) < 0.05


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -50.0, "NaN"])
def test_impossible_durations_are_said(value: float | str, public_traces: Path, tmp_path: Path):
    """NaN: HTA and profile_analysis take it silently. Negative: HTA and TraceLens subtract it (224 of 307 us)."""

    def spoil(trace: dict[str, Any]) -> None:
        for event in on_device(trace)[::10]:
            event["dur"] = value

    found = derived(public_traces / BERT, tmp_path, spoil)
    (before,), (after,) = diagnosis(public_traces / BERT).devices, found.devices
    assert 0.5 * before.busy_total_ns < after.busy_total_ns <= before.busy_total_ns
    assert len(found.notes) > len(diagnosis(public_traces / BERT).notes)
    assert all(line.ns >= 0 for line in found.budget)


def test_a_second_half_without_times_is_said(public_traces: Path, tmp_path: Path):
    """pytorch#188481. HTA and TraceLens: idle 0.0 and compute 0.0, exit status 0, no warning."""

    def zero(trace: dict[str, Any]) -> None:
        work = on_device(trace)
        for event in work[len(work) // 2 :]:
            event["ts"] = event["dur"] = 0

    found = derived(public_traces / BERT, tmp_path, zero)
    (after,) = found.devices
    assert 0 < after.busy_total_ns < diagnosis(public_traces / BERT).devices[0].busy_total_ns
    assert after.span_total_ns < 10 * MS
    assert any("a start of 0" in note and "the real device time is longer" in note for note in found.notes), found.notes


def test_every_event_twice_is_counted_once(public_traces: Path, tmp_path: Path):
    """All three tools accept duplicates silently."""

    def double(trace: dict[str, Any]) -> None:
        trace["traceEvents"] = [event for event in trace["traceEvents"] for _ in range(2)]

    found = derived(public_traces / BERT, tmp_path, double)
    (before,), (after,) = diagnosis(public_traces / BERT).devices, found.devices
    assert (after.busy_total_ns, after.span_total_ns) == (before.busy_total_ns, before.span_total_ns)
    assert after.kernels == before.kernels
    assert any("twice" in note or "duplicate" in note for note in found.notes), found.notes


def test_without_device_properties(public_traces: Path, tmp_path: Path):
    """profile_analysis: KeyError."""

    def forget(trace: dict[str, Any]) -> None:
        del trace["deviceProperties"]

    found = derived(public_traces / BERT, tmp_path, forget)
    assert (found.device, found.machine) == (None, None)
    assert any("--on" in note for note in found.notes)
    assert found.devices == diagnosis(public_traces / BERT).devices


def test_a_bare_list_of_events(public_traces: Path, tmp_path: Path):
    """Legal in the Chrome format. H10: HTA: AttributeError; TraceLens and profile_analysis fail too."""
    trace = json.loads(gzip.decompress((public_traces / BERT).read_bytes()))
    (tmp_path / "list.json").write_text(json.dumps(trace["traceEvents"]), encoding="utf-8")
    assert diagnose(tmp_path / "list.json").devices == diagnosis(public_traces / BERT).devices


def test_times_as_text(public_traces: Path, tmp_path: Path):
    """All three tools raise a Python exception."""

    def quote(trace: dict[str, Any]) -> None:
        for event in trace["traceEvents"]:
            for key in ("ts", "dur"):
                if key in event:
                    event[key] = str(event[key])

    assert derived(public_traces / BERT, tmp_path, quote).devices == diagnosis(public_traces / BERT).devices


def test_begin_and_end_events(public_traces: Path, tmp_path: Path):
    """Pairs of B and E instead of X. All three tools raise a Python exception."""

    def split(trace: dict[str, Any]) -> None:
        events = []
        for event in trace["traceEvents"]:
            if event.get("ph") != "X" or event.get("cat") not in ("kernel", "gpu_memcpy", "gpu_memset"):
                events.append(event)
                continue
            begin = {**event, "ph": "B"}
            end = {"ph": "E", "pid": event["pid"], "tid": event["tid"], "ts": event["ts"] + begin.pop("dur")}
            events += [begin, end]
        trace["traceEvents"] = events

    (before,) = diagnosis(public_traces / BERT).devices
    (after,) = derived(public_traces / BERT, tmp_path, split).devices
    assert after.kernels == before.kernels
    # a sum of two decimal fractions may miss the third by a nanosecond
    assert after.busy_total_ns == pytest.approx(before.busy_total_ns, abs=before.kernels)


@pytest.mark.parametrize("kind", ["cut", "cut gzip", "byte order mark", "control character", "empty"])
def test_damaged_files(kind: str, public_traces: Path, tmp_path: Path):
    """All three tools raise a Python exception. A part that can be read is read, the rest is refused in one line."""
    packed = (public_traces / BERT).read_bytes()
    text = gzip.decompress(packed)
    path = tmp_path / ("trace.json.gz" if kind == "cut gzip" else "trace.json")
    path.write_bytes(
        {
            "cut": text[: len(text) * 9 // 10],
            "cut gzip": packed[: len(packed) * 9 // 10],
            "byte order mark": b"\xef\xbb\xbf" + text,
            "control character": text.replace(b"aten::addmm", b"aten::add\x01mm"),
            "empty": b"",
        }[kind]
    )
    if kind == "empty":
        with pytest.raises(GobrrrError) as refused:
            diagnose(path)
        assert "\n" not in str(refused.value)
        return
    found = diagnose(path)
    (before,), (after,) = diagnosis(public_traces / BERT).devices, found.devices
    if kind.startswith("cut"):
        assert 0 < after.kernels <= before.kernels
        assert any("cut" in note or "ends" in note or "truncated" in note for note in found.notes), found.notes
    else:
        assert after == before


def test_integers_beyond_64_bits(public_traces: Path):
    """HTA's own regression trace: its first readers overflowed."""
    found = diagnosis(next((public_traces / "hta").glob("large_integer_trace*")))
    assert np.isfinite(found.wall_ns or 0)
    assert found.devices[0].busy_total_ns == 50 * US
