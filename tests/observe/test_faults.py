"""What can be wrong with a trace: each fault gives a profile with a note that says what is missing, or one line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gobrrr.doors.pipeline import diagnose
from gobrrr.errors import EmptyTraceError, InputError, NotATraceError
from gobrrr.model.profile import Profile
from gobrrr.observe import source
from gobrrr.observe.trace import read_trace
from tests.observe.traces import busy_ns, kernel, launch, op, step, trace, write


def read(path: Path, content: Any, name: str = "t.json") -> Profile:
    return read_trace(write(path / name, content))


def one_line(path: Path, content: bytes, name: str = "t.json") -> str:
    with pytest.raises(InputError) as caught:
        read(path, content, name)
    text = str(caught.value)
    assert caught.value.exit_code == 2
    assert "\n" not in text
    assert text.startswith(str(path / name))
    return text.removeprefix(f"{path / name}: ")


def test_cut_off_json(tmp_path: Path) -> None:
    data = json.dumps(trace([kernel(ts=n) for n in range(100)])).encode()
    cut = data.index(b'"ts": 60')
    unfinished = cut - data.rindex(b'{"ph"', 0, cut)
    profile = read(tmp_path, data[:cut])
    assert len(profile.ranks[0].events) == 60
    assert profile.notes[0] == (
        f"the file is cut off: 60 whole events before the cut were read, the last {unfinished} bytes are the start of "
        "an event and were dropped; everything behind the cut is missing, so that the real totals are higher"
    )


def test_a_cut_trace_is_named_before_the_numbers(tmp_path: Path) -> None:
    data = json.dumps(trace([kernel(ts=n) for n in range(100)])).encode()
    cut, whole = data[: data.index(b'"ts": 60')], data
    assert diagnose(read(tmp_path, whole)).caveats == []
    write(tmp_path / "rank1.json", cut)
    write(tmp_path / "rank0.json", whole)
    (tmp_path / "t.json").unlink()
    found = diagnose(read_trace(tmp_path)).caveats
    assert [one.partition(" cut off")[0] for one in found] == ["Of 2 traces rank1.json is"]
    alone = diagnose(read_trace(tmp_path / "rank1.json")).caveats
    assert [one.partition(" (")[0] for one in alone] == ["The trace is cut off or damaged"]


def test_cut_off_between_two_events(tmp_path: Path) -> None:
    data = json.dumps(trace([kernel(ts=n) for n in range(3)])).encode()
    profile = read(tmp_path, data[: data.rindex(b', {"ph"')])
    assert len(profile.ranks[0].events) == 2
    assert profile.notes[0] == (
        "the file is cut off: 2 whole events before the cut were read; everything behind the cut is missing, so that "
        "the real totals are higher"
    )


def test_device_work_that_is_not_in_a_cut_trace_is_not_said_to_be_none(tmp_path: Path) -> None:
    events = [op("aten::mm", ts=n) for n in range(3)]
    told = [read(tmp_path, data).notes[-1] for data in (trace(events), json.dumps(trace(events)).encode()[:-90])]
    assert "the step ran on the CPU alone" in told[0]
    assert "it may lie in what is missing" in told[1]


def test_cut_off_behind_the_events(tmp_path: Path) -> None:
    data = json.dumps(trace(step())).encode()
    profile = read(tmp_path, data[:-4])
    assert len(profile.ranks[0].events) == 3
    assert profile.notes == (
        "what stands behind the events is cut off or no JSON and was ignored; no event is lost by it",
    )


def test_cut_off_gzip(tmp_path: Path) -> None:
    events = [kernel(f"k{n * n % 9973}", ts=n) for n in range(20_000)]
    data = gzip.compress(json.dumps(trace(events)).encode())
    profile = read(tmp_path, data[: len(data) // 2], "t.bin")
    note = profile.notes[0]
    assert note.startswith(
        f"the file is cut off (the gzip stream has no end, only its first {len(data) // 2:,} bytes are there): "
        f"{len(profile.ranks[0].events):,} whole events before the cut were read, "
    )
    assert 5_000 < len(profile.ranks[0].events) < 20_000


def test_only_the_end_of_the_gzip_is_missing(tmp_path: Path) -> None:
    data = gzip.compress(json.dumps(trace(step())).encode())
    profile = read(tmp_path, data[:-5], "t.bin")
    assert len(profile.ranks[0].events) == 3
    assert profile.notes == (
        f"the gzip stream has no end, only its first {len(data) - 5:,} bytes are there: behind the last event, so that "
        "no event is lost",
    )


def test_damaged_gzip_keeps_what_stands_before_the_damage(tmp_path: Path) -> None:
    events = [kernel(f"k{n * n % 9973}", ts=n) for n in range(20_000)]
    data = bytearray(gzip.compress(json.dumps(trace(events)).encode()))
    for at in range(len(data) // 2, len(data) // 2 + 64):
        data[at] ^= 0xFF
    profile = read(tmp_path, bytes(data), "t.bin")
    assert len(profile.ranks[0].events) > 8_000
    assert "the gzip stream is damaged after byte" in profile.notes[0]
    assert f" of {len(data):,} (" in profile.notes[0]


def test_several_gzip_members_and_padding(tmp_path: Path) -> None:
    data = json.dumps(trace(step())).encode()
    members = b"".join(gzip.compress(data[at : at + 40]) for at in range(0, len(data), 40))
    profile = read(tmp_path, members + b"\0" * 512, "t.bin")
    assert (len(profile.ranks[0].events), profile.notes) == (3, ())


def test_damage_in_the_middle_costs_one_event(tmp_path: Path) -> None:
    data = json.dumps(trace([kernel(f"k{n}", ts=n) for n in range(5_000)]))
    bad = data.replace('"name": "k2500"', '"name": k2500"')
    profile = read(tmp_path, bad.encode())
    assert len(profile.ranks[0].events) == 4_999
    assert profile.notes[0].endswith(
        "bytes in 1 place of the event list are no JSON and were skipped; the events in them are missing"
    )


def test_a_lost_closing_brace_costs_one_event(tmp_path: Path) -> None:
    events = [json.dumps(kernel(f"k{n}", ts=n)) for n in range(10)]
    events[4] = events[4][:-2]
    profile = read(tmp_path, f'{{"traceEvents": [{", ".join(events)}]}}'.encode())
    assert len(profile.ranks[0].events) == 9


def test_entries_that_are_no_events(tmp_path: Path) -> None:
    profile = read(tmp_path, trace([1, None, "x", [kernel()], *step()]))
    assert len(profile.ranks[0].events) == 3
    assert profile.notes == ("4 entries of the event list are no events and were ignored",)


@pytest.mark.parametrize("value", ["NaN", "-3", "null", '"soon"', "1e400", "-Infinity", "true", "[1]", "{}", "9e30"])
def test_durations_that_are_none(tmp_path: Path, value: str) -> None:
    text = json.dumps(trace([op(), launch(), kernel(ts=12, dur="BAD"), kernel(ts=20, dur=2)]))
    profile = read(tmp_path, text.replace('"BAD"', value).encode())
    assert profile.notes == (
        "1 event has a missing, negative, non-finite or impossibly large time and can't be placed: left out, 1 of them "
        "device work, so that the real device time is longer",
    )
    assert busy_ns(profile.ranks[0].events) == 2_000


def test_a_missing_duration(tmp_path: Path) -> None:
    event = kernel()
    del event["dur"]
    profile = read(tmp_path, trace([*step(), event]))
    assert (len(profile.ranks[0].events), len(profile.notes)) == (3, 1)


def test_durations_of_zero(tmp_path: Path) -> None:
    profile = read(tmp_path, trace([*step(), kernel(ts=20, dur=0, correlation=2)]))
    assert len(profile.ranks[0].events) == 4
    assert profile.notes == ("device events with a duration of 0: 1 of 2; the real device time is longer",)


def test_zeroed_records(tmp_path: Path) -> None:
    base = 1_669_783_687_352_244
    events = [op(ts=base), launch(ts=base + 1), kernel(ts=base + 5), kernel(ts=0, dur=0), kernel(ts=0, dur=7)]
    profile = read(tmp_path, trace(events))
    assert profile.notes == (
        "2 events have a start of 0, far from all others, and can't be placed: left out, 2 of them device work, so "
        "that the real device time is longer",
    )
    assert profile.ranks[0].events.start_ns.tolist() == [0, 1_000, 5_000]


def test_times_at_both_ends_of_the_clock(tmp_path: Path) -> None:
    far = [kernel(ts=-9_000_000_000_000_000), kernel(ts=9_000_000_000_000_000)]
    events = read(tmp_path, trace([*step(), *step()[::-1], op(ts=30), *far])).ranks[0].events
    assert (events.start_ns >= 0).all()
    assert (events.end_ns >= events.start_ns).all()
    assert int(events.end_ns.max()) == 26_000


def test_events_that_stand_twice(tmp_path: Path) -> None:
    note = op("ProfilerStep#1", cat="user_annotation", ts=1, dur=40)
    del note["args"]
    profile = read(tmp_path, trace([note, *step()] * 2))
    assert len(profile.ranks[0].events) == 4
    assert profile.notes == ("4 events stand twice in the file; counted once",)


def test_equal_short_calls_without_identifiers_are_kept(tmp_path: Path) -> None:
    call = launch(name="cudaGetDevice", args={}, dur=0)
    assert len(read(tmp_path, trace([*step(), call, call])).ranks[0].events) == 5


def test_calls_without_identifiers_in_a_file_that_holds_all_events_twice(tmp_path: Path) -> None:
    frame = op("train.py(3): load", cat="python_function", dur=2_000)
    del frame["args"]
    call = launch(name="cudaGetDevice", args={}, ts=20)
    profile = read(tmp_path, trace([frame, call, *step()] * 2))
    assert len(profile.ranks[0].events) == 5
    assert profile.notes == ("5 events stand twice in the file; counted once",)


def deep(levels: int, ts: float) -> bytes:
    """An operation with an argument of so many lists in each other."""
    event = json.dumps(op(ts=ts)).encode()
    return event.replace(
        b'"External id"', b'"deep": ' + b"[" * levels + b'{"a]": 1}' + b"]" * levels + b', "External id"'
    )


@pytest.mark.parametrize("levels", [2_000, 40_000])
def test_an_argument_nested_too_deep(tmp_path: Path, levels: int) -> None:
    """The event is read without it, and so are all others; a chunk of the decoder holds less than the longer one."""
    whole = json.dumps(trace([*step(), "here", *step()])).encode()
    profile = read(tmp_path, whole.replace(b'"here"', deep(levels, 30.0)))
    events = profile.ranks[0].events
    assert len(events) == 7 - 3
    row = next(row for row in range(len(events)) if events.start_ns[row] == 23_000)
    assert events.external_id[row] == 3
    assert events.texts[int(events.dims[row])].replace(b" ", b"") == b"[[8,8],[8,8]]"
    assert profile.notes[0] == (
        "1 event in which more than 64 lists or objects stand in each other: what is deeper was not read"
    )


def test_a_cut_in_an_argument_nested_too_deep(tmp_path: Path) -> None:
    whole = json.dumps(trace([*step(), "here"])).encode()
    at = whole.index(b'"here"')
    profile = read(tmp_path, whole[:at] + deep(5_000, 30.0)[:6_000])
    assert len(profile.ranks[0].events) == 3
    assert "3 whole events before the cut were read, the last 6,000 bytes are the start" in profile.notes[0]


def test_depth_without_end_takes_bounded_time(tmp_path: Path) -> None:
    head, tail = json.dumps(trace([*step(), "here", *step()])).encode().split(b'"here"')
    event = b'{"a":' + b"[" * 2_000 + b","
    profile = read(tmp_path, head + event * 1_500 + tail)
    assert len(profile.ranks[0].events) >= 3


def test_kernels_without_correlation(tmp_path: Path) -> None:
    profile = read(tmp_path, trace([*step(), kernel(ts=50, args={"device": 0, "stream": 7})]))
    assert profile.notes == (
        "kernels without a correlation id: 1 of 2; they can't be joined to the calls that launched them",
    )


@pytest.mark.parametrize("value", ["text", {"0": {}}, 5])
def test_device_properties_that_are_none(tmp_path: Path, value: Any) -> None:
    profile = read(tmp_path, trace(step(), deviceProperties=value))
    assert profile.notes[0] == "deviceProperties is not a list; ignored"
    assert profile.ranks[0].meta.devices == ()


def test_metadata_that_is_no_json(tmp_path: Path) -> None:
    events = json.dumps(step())
    profile = read(tmp_path, f'{{"deviceProperties": [oops], "traceEvents": {events}}}'.encode())
    assert len(profile.ranks[0].events) == 3
    assert profile.notes[0] == "what stands before the events is no JSON: device, rank and versions may be unknown"


def test_a_wrong_extension(tmp_path: Path) -> None:
    data = json.dumps(trace(step())).encode()
    (tmp_path / "a.json").write_bytes(gzip.compress(data))
    (tmp_path / "a.json.gz").write_bytes(data)
    (tmp_path / "a").write_bytes(gzip.compress(data))
    assert read_trace(tmp_path / "a").notes == ()
    for name, said in (("a.json", "plain JSON"), ("a.json.gz", "gzip")):
        profile = read_trace(tmp_path / name)
        assert len(profile.ranks[0].events) == 3
        assert profile.notes == (f"the name says {said}, the content is the other: read by its content",)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file is empty"),
        (b" \n\t ", "the file holds nothing but blanks"),
        (b"\xef\xbb\xbf", "the file holds nothing but blanks"),
        (b"\0" * 5000, "the file holds nothing but blanks"),
        (b"hello", "not JSON"),
        (b"12", "not JSON"),
        (b"{", "JSON, but without traceEvents"),
        (b"{}", "JSON, but without traceEvents"),
        (b'{"traceEvents": {}}', "traceEvents is no list of events"),
        (b'{"traceEvents": null}', "traceEvents is no list of events"),
        (b"[]", "the trace holds no events: run the step inside torch.profiler.profile"),
        (b'{"traceEvents": []}', "the trace holds no events: run the step inside torch.profiler.profile"),
        (b"[1, 2]", "the trace holds no event that can be used: 2 entries of the event list are no events"),
        (b'{"traceEvents": [{"ph": "X", "ts"', "the trace holds no event that can be used: the file is cut off"),
        (b'{"traceEvents": [{"ph": "M", "ts": 1}]}', "the trace holds no event with a duration, only metadata and"),
        (b'{"rocprofiler-sdk-tool": [{}]}', "a result of rocprofv3, not a PyTorch trace"),
        (b'{"schema": "1.1.1-chakra", "nodes": []}', "a PyTorch execution trace"),
        (b'{"not_checked": [], "budget": []}', "a saved gobrrr diagnosis"),
        (b'{"$schema": "https://www.speedscope.app/"}', "a profile of another tool"),
        (b"<!DOCTYPE html><html>Sign in</html>", "a web page or XML"),
        (b"PK\x03\x04 and more", "the archive is cut off or damaged: File is not a zip file"),
        (b"SQLite format 3\0 and more", "an SQLite database"),
        (b"\x28\xb5\x2f\xfd..", "compressed with zstd"),
        (b"\xfd7zXZ\0..", "compressed with xz"),
        (b"BZh91AY", "compressed with bzip2"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        (b"\xff\xfe{\0", "UTF-16 text"),
        (b"a" * 257 + b"ustar\x0000", "the archive is cut off or damaged: "),
        (gzip.compress(b"", mtime=0), "the file is empty"),
        (gzip.compress(b"<html>", mtime=0), "a web page or XML"),
        (gzip.compress(b"hello" * 99, mtime=0)[:10], "nothing could be read: the gzip stream has no end"),
        (b"\x1f\x8b" + b"\xff" * 99, "nothing could be read: the gzip stream is damaged"),
    ],
)
def test_no_trace_at_all(tmp_path: Path, content: bytes, says: str) -> None:
    assert one_line(tmp_path, content).startswith(says)


@pytest.mark.parametrize("name", ["a.nsys-rep", "a.ncu-rep", "a.sqlite", "a.pftrace", "a.py"])
def test_a_file_of_another_tool(tmp_path: Path, name: str) -> None:
    assert "torch.profiler's export_chrome_trace" in one_line(tmp_path, b"\x00\x12binary", name)


def test_only_python_frames(tmp_path: Path) -> None:
    content = json.dumps(trace([op(cat="python_function")])).encode()
    assert one_line(tmp_path, content).startswith("the trace holds nothing but Python frames (1)")


def test_another_chrome_trace(tmp_path: Path) -> None:
    content = json.dumps(trace([op(cat="v8"), op(cat="blink", ts=20)])).encode()
    text = one_line(tmp_path, content)
    assert text.startswith("a Chrome trace, but not of PyTorch's profiler (categories: 'v8', 'blink')")


def test_no_event_can_be_placed(tmp_path: Path) -> None:
    with pytest.raises(EmptyTraceError, match="1 event has a missing, negative"):
        read(tmp_path, trace([kernel(dur=-1)]))


def test_the_errors_are_one_tree() -> None:
    assert issubclass(NotATraceError, InputError)
    assert issubclass(EmptyTraceError, InputError)


def test_reading_that_stops(tmp_path: Path) -> None:
    data = json.dumps(trace([kernel(ts=n) for n in range(50)])).encode()

    class Broken:
        def __init__(self) -> None:
            self.left = [data[:3000]]

        def read(self, _: int) -> bytes:
            if self.left:
                return self.left.pop()
            raise TimeoutError("timed out")

    blocks = source.Blocks(Broken())  # type: ignore[arg-type]
    assert b"".join(blocks) == data[:3000]
    assert blocks.fault == "reading stopped after 3,000 bytes: timed out"
