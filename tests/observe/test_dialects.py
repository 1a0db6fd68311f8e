"""Every dialect, each as a trace of a few events with the numbers that must come out."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gobrrr.model.events import ABSENT, EventKind, EventTable
from gobrrr.model.profile import Profile
from gobrrr.observe.trace import read_trace
from tests.observe.traces import DEVICE, busy_ns, kernel, launch, op, rows, step, trace, write


def read(path: Path, content: Any, name: str = "t.json", **options: Any) -> Profile:
    return read_trace(write(path / name, content), **options)


def table(path: Path, content: Any, **options: Any) -> EventTable:
    return read(path, content, **options).ranks[0].events


def kinds(events: EventTable) -> list[EventKind]:
    return [EventKind(number) for number in events.kind.tolist()]


def test_todays_kineto(tmp_path: Path) -> None:
    around = {"distributedInfo": {"rank": 3, "world_size": 8}, "cuda_runtime_version": 12040,
              "baseTimeNanoseconds": 1_727_743_122_000_000_000}  # fmt: skip
    profile = read(tmp_path, trace(step(), **around))
    (rank,) = profile.ranks
    assert profile.notes == ()
    assert (profile.origin, rank.rank, rank.meta.world_size, rank.frames) == ("trace", 3, 8, False)
    assert rank.meta.devices[0].name == "NVIDIA H100 80GB HBM3"
    assert (rank.meta.devices[0].compute, rank.meta.devices[0].processors) == ((9, 0), 132)
    assert rank.meta.recorded == {"record_shapes"}
    assert rank.meta.versions == {"cuda_runtime_version": "12040"}
    assert rank.meta.origin_ns == 1_727_743_122_000_000_000 + 7_000
    events = rank.events
    assert kinds(events) == [EventKind.OP, EventKind.RUNTIME, EventKind.KERNEL]
    assert events.start_ns.tolist() == [0, 1_000, 3_000]
    assert events.duration_ns.tolist() == [3_000, 1_000, 5_000]
    assert events.device.tolist() == [ABSENT, ABSENT, 0]
    assert events.stream.tolist() == [ABSENT, ABSENT, 7]
    assert events.correlation.tolist() == [ABSENT, 1, 1]
    assert events.external_id.tolist() == [3, 3, 3]
    assert events.texts[events.dims[0]] == b"[[8, 8], [8, 8]]"
    assert events.threads[events.thread[0]] == "1/2"


def test_categories_of_2021(tmp_path: Path) -> None:
    events = [
        {"ph": "X", "cat": "Operator", "name": "aten::mm", "pid": 1, "tid": "2", "ts": 100, "dur": 9,
         "args": {"Input dims": [[2, 2]], "External id": 3}},
        {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": "2", "ts": 101, "dur": 2,
         "args": {"correlation": 5, "external id": 3}},
        {"ph": "X", "cat": "Kernel", "name": "gemm", "pid": 0, "tid": "stream 7", "ts": 104, "dur": 4,
         "args": {"stream": 7, "correlation": 5, "external id": 3}},
        {"ph": "X", "cat": "Memcpy", "name": "Memcpy HtoD", "pid": 0, "tid": "stream 9", "ts": 106, "dur": 4,
         "args": {"bytes": 64, "correlation": 6}},
        {"ph": "X", "cat": "Memset", "name": "Memset", "pid": 0, "tid": "stream 7", "ts": 111, "dur": 1,
         "args": {"bytes": 32, "correlation": 7}},
    ]  # fmt: skip
    found = table(tmp_path, trace(events))
    assert kinds(found) == [EventKind.OP, EventKind.RUNTIME, EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET]
    assert found.stream.tolist() == [ABSENT, ABSENT, 7, 9, 7]
    assert found.device.tolist() == [ABSENT, ABSENT, 0, 0, 0]
    assert found.bytes.tolist() == [ABSENT, ABSENT, ABSENT, 64, 32]
    assert found.external_id.tolist() == [3, 3, 3, ABSENT, ABSENT]
    assert found.texts[found.dims[0]] == b"[[2, 2]]"
    assert busy_ns(found) == 7_000  # 104 to 110 and 111 to 112


def test_a_bare_list(tmp_path: Path) -> None:
    profile = read(tmp_path, step())
    assert kinds(profile.ranks[0].events) == [EventKind.OP, EventKind.RUNTIME, EventKind.KERNEL]
    assert profile.notes == ("the trace does not say on which device it was recorded (no deviceProperties)",)


def test_amd(tmp_path: Path) -> None:
    events = [op(), launch(name="hipLaunchKernel", cat="cuda_runtime"), kernel("Cijk_Ailk", pid=2, tid=0)]
    device = {"id": 2, "name": "AMD Instinct MI300X", "totalGlobalMem": 206_000_000_000, "numSms": 304}
    (rank,) = read(tmp_path, trace(events, deviceProperties=[device], hip_runtime_version=70253211)).ranks
    assert rank.meta.devices[0].name == "AMD Instinct MI300X"
    assert rank.meta.versions == {"hip_runtime_version": "70253211"}
    assert kinds(rank.events) == [EventKind.OP, EventKind.RUNTIME, EventKind.KERNEL]


def test_mtia(tmp_path: Path) -> None:
    events = [
        {"ph": "X", "cat": "mtia_runtime", "name": "runFunction", "pid": 5, "tid": 5, "ts": 1, "dur": 2,
         "args": {"correlation": 9}},
        {"ph": "X", "cat": "mtia_ccp_events", "name": "job", "pid": 17, "tid": 30, "ts": 4, "dur": 6, "args": {}},
        {"ph": "X", "cat": "mtia_ccp_events", "name": "event_wait", "pid": 17, "tid": 31, "ts": 4, "dur": 60,
         "args": {"stream": 108, "wait_on_stream": 104}},
    ]  # fmt: skip
    around = {"distributedInfo": "{'backend': 'mtia:hccl', 'rank': 6, 'world_size': 9, 'pg_config': [{"}
    profile = read(tmp_path, trace([op(), *events], **around))
    (rank,) = profile.ranks
    assert (rank.rank, rank.meta.world_size) == (6, 9)
    assert sorted(kinds(rank.events)) == [EventKind.OP, EventKind.RUNTIME, EventKind.SYNC, EventKind.KERNEL]
    assert busy_ns(rank.events, device=17) == 6_000, "a wait is not work"
    assert profile.notes == (
        "kernels without a correlation id: 1 of 1; they can't be joined to the calls that launched them",
    )


def test_cpu_only(tmp_path: Path) -> None:
    profile = read(tmp_path, trace([op(), op(ts=20)], deviceProperties=None))
    assert len(profile.ranks[0].events.on_device) == 0
    (note,) = profile.notes
    assert note.startswith("no kernel, copy or set on any device was recorded")


def test_begin_and_end_pairs(tmp_path: Path) -> None:
    base = {"pid": 1, "tid": 2, "cat": "cpu_op"}
    events = [
        base | {"ph": "B", "name": "outer", "ts": 1.5},
        base | {"ph": "B", "name": "inner", "ts": 2.25},
        base | {"ph": "B", "name": "other thread", "ts": 2, "tid": 3},
        base | {"ph": "E", "ts": 4},
        base | {"ph": "E", "ts": 7.125, "tid": 3},
        base | {"ph": "E", "ts": 9},
        base | {"ph": "E", "ts": 10},
        base | {"ph": "B", "name": "open", "ts": 11},
        kernel(),
    ]
    profile = read(tmp_path, trace(events))
    found = profile.ranks[0].events
    spans = {found.name_of(row): (found.start_ns[row], found.duration_ns[row]) for row in range(len(found))}
    assert spans == {"outer": (0, 7500), "other thread": (500, 5125), "inner": (750, 1750), "gemm": (8500, 5000)}
    assert profile.notes == ("2 begin or end events have no partner and were left out",)


@pytest.mark.parametrize(
    ("category", "kind"),
    [
        ("user_annotation", EventKind.ANNOTATION),
        ("gpu_user_annotation", EventKind.GPU_ANNOTATION),
        ("cuda_driver", EventKind.RUNTIME),
        ("cuda_sync", EventKind.SYNC),
        ("overhead", EventKind.OVERHEAD),
        ("gpu_memcpy", EventKind.MEMCPY),
        ("gpu_memset", EventKind.MEMSET),
        ("hpu_op", EventKind.RUNTIME),
        ("KERNEL", EventKind.KERNEL),
        ("Trace", EventKind.OTHER),
        ("", EventKind.OTHER),
        (None, EventKind.OTHER),
        (7, EventKind.OTHER),
        (["kernel"], EventKind.OTHER),
        ({"kernel": 1}, EventKind.OTHER),
    ],
)
def test_the_category_alone_decides(tmp_path: Path, category: Any, kind: EventKind) -> None:
    looks_like_a_kernel = kernel(cat=category, ts=0)
    found = table(tmp_path, trace([looks_like_a_kernel, op()]))
    assert kinds(found)[0] == kind


def test_device_arguments_make_no_device_event(tmp_path: Path) -> None:
    host = op(args={"device": 0, "stream": 7, "correlation": 1, "External id": 1})
    found = table(tmp_path, trace([host]))
    assert (len(found.on_device), found.device.tolist(), found.stream.tolist()) == (0, [ABSENT], [ABSENT])


@pytest.mark.parametrize(
    "us",
    [
        ["1669783687352244.123", "1669783687352245.001", "1669783687352250"],
        ["1669783687352244", "1669783687352245", "1669783687352250"],
        ["3605057436108.407", "3605057436108.408", "3605057439999.999"],
        ["8796093022207.999", "8796093022208.001", "8796093022208.002"],  # around 2^43
        ["0.001", "0.002", "0.999"],
        ["-5.25", "-1.125", "0"],
        ["1.5e3", "1501.001", "15.02E+2"],
        ['"1669783687352244.123"', "1669783687352244.124", '" 1669783687352250 "'],
    ],
)
def test_no_digit_is_lost(tmp_path: Path, us: list[str]) -> None:
    events = [json.dumps(kernel(ts=0, dur=0.017)).replace('"ts": 0', f'"ts": {text}') for text in us]
    found = table(tmp_path, ('{"deviceProperties": [{}], "traceEvents": [' + ",".join(events) + "]}").encode())
    exact = [int(Decimal(text.strip('" ')) * 1000) for text in us]
    assert found.start_ns.tolist() == [value - exact[0] for value in exact]
    assert found.duration_ns.tolist() == [17, 17, 17]


def test_numbers_as_text(tmp_path: Path) -> None:
    event = kernel(ts="10.001", dur="5.002", pid="0", tid="7")
    event["args"] = {"device": "0", "stream": "7", "correlation": "12", "External id": "3"}
    found = table(tmp_path, trace([event, op()]))
    (row,) = found.on_device.tolist()
    assert (found.start_ns[row], found.duration_ns[row]) == (3001, 5002)
    assert (found.device[row], found.stream[row], found.correlation[row], found.external_id[row]) == (0, 7, 12, 3)


def test_numbers_that_are_none(tmp_path: Path) -> None:
    event = kernel()
    event["args"] = {"device": 1 << 40, "stream": -7, "correlation": 1 << 64, "External id": 7.5, "bytes": [1]}
    found = table(tmp_path, trace([event]))
    assert (found.device[0], found.stream[0], found.correlation[0], found.external_id[0]) == (0, 7, ABSENT, ABSENT)


def test_a_byte_order_mark(tmp_path: Path) -> None:
    plain = table(tmp_path, trace(step()))
    marked = read(tmp_path, b"\xef\xbb\xbf" + json.dumps(trace(step())).encode())
    assert marked.notes == ()
    assert rows(marked.ranks[0].events) == rows(plain)
    assert rows(table(tmp_path, b"\xef\xbb\xbf \n" + json.dumps(step()).encode())) == rows(plain)


def test_control_characters_stay_in_names(tmp_path: Path) -> None:
    text = json.dumps(trace([kernel("NAME"), *step()])).replace("NAME", "bell\x07 tab\t esc\x1b[31m nul\x00")
    profile = read(tmp_path, text.encode())
    assert "bell\x07 tab\t esc\x1b[31m nul\x00" in profile.ranks[0].events.names
    assert len(profile.ranks[0].events) == 4
    assert profile.notes == ()


def test_invalid_utf8_in_names(tmp_path: Path) -> None:
    data = json.dumps(trace([kernel("NAME"), *step()])).encode().replace(b"NAME", b"a\xff\xc3b")
    profile = read(tmp_path, data)
    assert len(profile.ranks[0].events) == 4
    assert all(name.encode() for name in profile.ranks[0].events.names)


def test_python_frames_only_when_asked_for(tmp_path: Path) -> None:
    frames = [op(f"model.py({line}): forward", cat="python_function", ts=line, external_id=line) for line in range(5)]
    content = trace([*step(), *frames])
    without, with_ = read(tmp_path, content), read(tmp_path, content, python=True)
    assert (without.ranks[0].frames, with_.ranks[0].frames) == (False, True)
    assert (len(without.ranks[0].events), len(with_.ranks[0].events)) == (3, 8)
    assert len(with_.ranks[0].events.of(EventKind.PYTHON)) == 5
    assert without.notes == with_.notes == ()


def test_long_python_frames_are_kept_in_any_case(tmp_path: Path) -> None:
    frames = [op("train.py(3): load", cat="python_function", dur=dur) for dur in (999, 1_000, 2_500)]
    (rank,) = read(tmp_path, trace([*step(), *frames])).ranks
    kept = rank.events.of(EventKind.PYTHON)
    assert sorted(rank.events.duration_ns[kept].tolist()) == [1_000_000, 2_500_000]
    assert not rank.frames


def test_long_python_frames_whose_durations_are_text(tmp_path: Path) -> None:
    frames = [op("train.py(3): load", cat="python_function", dur=dur) for dur in ("999", "1000", "2500.5", "x", None)]
    (rank,) = read(tmp_path, trace([*step(), *frames])).ranks
    kept = rank.events.of(EventKind.PYTHON)
    assert sorted(rank.events.duration_ns[kept].tolist()) == [1_000_000, 2_500_500]


@pytest.mark.parametrize("python", [False, True])
def test_python_frames_that_begin_and_end(tmp_path: Path, python: bool) -> None:
    """How long a frame is shows when it ends; the end of a short one must not close the frame around it."""
    frame = {"cat": "python_function", "pid": 1, "tid": 2}
    frames = [
        {"ph": "B", "name": "train.py(1): step", "ts": 100, **frame},
        {"ph": "B", "name": "train.py(2): short", "ts": 200, **frame},
        {"ph": "E", "ts": 300, "pid": 1, "tid": 2},
        {"ph": "E", "ts": 5_100, "pid": 1, "tid": 2},
    ]
    profile = read(tmp_path, trace([*step(), *frames]), python=python)
    (rank,) = profile.ranks
    kept = rank.events.of(EventKind.PYTHON)
    found = {rank.events.name_of(row): int(rank.events.duration_ns[row]) for row in kept}
    assert found == {"train.py(1): step": 5_000_000} | ({"train.py(2): short": 100_000} if python else {})
    assert profile.notes == ()


@pytest.mark.parametrize(
    ("grid", "blocks"),
    [([8192, 2, 3], 49152), ("[64, 1, 1]", 64), ([], -1), (None, -1), ("x", -1), ([1 << 40, 1 << 40, 1 << 40], -1)],
)
def test_blocks_of_a_grid(tmp_path: Path, grid: object, blocks: int) -> None:
    events = step()
    kernel = next(event for event in events if event["cat"] == "kernel")
    kernel["args"]["grid"] = grid
    (rank,) = read(tmp_path, trace(events)).ranks
    assert rank.events.blocks[rank.events.of(EventKind.KERNEL)].tolist() == [blocks]


def test_metadata_behind_the_events(tmp_path: Path) -> None:
    data = {"traceEvents": step(), "deviceProperties": [DEVICE, DEVICE | {"id": 1}], "x": [{"a": [{}]}, {"ph": "X"}],
            "distributedInfo": {"rank": 2}, "with_stack": 1}  # fmt: skip
    profile = read(tmp_path, data)
    (rank,) = profile.ranks
    assert profile.notes == ()
    assert ([device.id for device in rank.meta.devices], rank.rank) == ([0, 1], 2)
    assert rank.meta.recorded == {"with_stack"}
    assert len(rank.events) == 3


def test_collectives_and_waits_keep_their_arguments(tmp_path: Path) -> None:
    args = {"Collective name": "allreduce", "In msg nelems": 8, "dtype": "BFloat16", "Group size": 2}
    wait = {"cuda_sync_kind": "Stream Wait Event", "wait_on_stream": 20, "stream": 7, "device": 0}
    events = [kernel("nccl", args=args), kernel("Stream Wait Event", cat="cuda_sync", ts=30, args=wait)]
    found = table(tmp_path, trace(events))
    extra = [json.loads(found.texts[index]) for index in found.extra.tolist()]
    assert extra[0] == {"collective": "allreduce", "in_elements": 8, "dtype": "BFloat16", "group_size": 2}
    assert extra[1] == {"sync_kind": "Stream Wait Event", "wait_on_stream": 20}
    assert kinds(found) == [EventKind.KERNEL, EventKind.SYNC]
