"""Random traces, sound and broken: the same table whatever the blocks, every whole event kept, never another error."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gobrrr.errors import GobrrrError
from gobrrr.model.profile import Profile
from gobrrr.observe import decode, shards
from gobrrr.observe.columns import Builder
from gobrrr.observe.decode import Decoder
from gobrrr.observe.reading import Reading
from gobrrr.observe.table import assemble
from gobrrr.observe.trace import read_trace
from tests.observe.traces import rows
from tests.spread import examples

QUICK = settings(
    max_examples=examples(400, ci=15),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

NAMES = st.text(max_size=12) | st.sampled_from(
    ["a},{b", '"},{"ph":"X"}', "\\", "]}", "],[", "\x00\x1f", "名", "{", "}, {"]
)
LEAVES = st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | NAMES
NESTED = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
OBJECTS = st.lists(st.dictionaries(NAMES, NESTED, max_size=2), max_size=3)
CATEGORIES = st.sampled_from(["cpu_op", "kernel", "gpu_memcpy", "cuda_runtime", "Kernel", "user_annotation", "x"])
NANOSECONDS = st.integers(0, 10**7)


@st.composite
def sound_event(draw: st.DrawFn) -> dict[str, Any]:
    """What a profiler may write."""
    args = draw(st.dictionaries(NAMES, NESTED | OBJECTS, max_size=2))
    args |= draw(st.fixed_dictionaries({}, optional={
        "External id": st.integers(0, 99), "correlation": st.integers(0, 99), "device": st.integers(0, 3),
        "stream": st.integers(0, 40), "Input Dims": st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=3),
        "Concrete Inputs": st.lists(NAMES, max_size=2), "Collective name": NAMES,
    }))  # fmt: skip
    base = draw(st.sampled_from([0, 0, 1_669_783_687_352_244]))
    return {
        "ph": draw(st.sampled_from("XXXXXBEMi")),
        "cat": draw(CATEGORIES),
        "name": draw(NAMES),
        "pid": draw(st.integers(0, 3)),
        "tid": draw(st.integers(0, 3) | st.just("stream 7")),
        "ts": Number(base * 1000 + draw(NANOSECONDS)),
        "dur": Number(draw(NANOSECONDS)),
        "args": args,
    }


class Number(float):
    """Nanoseconds that JSON shows as microseconds with three decimals, exactly."""

    ns: int

    def __new__(cls, ns: int) -> Number:
        self = super().__new__(cls, ns / 1000)
        self.ns = ns
        return self

    def __repr__(self) -> str:
        return f"{self.ns // 1000}.{self.ns % 1000:03d}"


def dumps(value: Any, indent: str) -> str:
    """`json.dumps` that keeps every digit of a `Number`; `indent` stands between two entries."""
    if isinstance(value, Number):
        return repr(value)
    if isinstance(value, list):
        return f"[{f',{indent}'.join(dumps(item, indent) for item in value)}]"
    if isinstance(value, dict):
        return "{" + f",{indent}".join(f"{json.dumps(key)}: {dumps(item, indent)}" for key, item in value.items()) + "}"
    return json.dumps(value, ensure_ascii=len(indent) % 2 == 0)


METADATA = st.dictionaries(
    st.sampled_from(["schemaVersion", "deviceProperties", "distributedInfo", "with_stack", "x", "y"]), NESTED | OBJECTS
)


@st.composite
def sound_trace(draw: st.DrawFn, least: int = 0) -> bytes:
    """The bytes of a trace: a bare list, or an object with metadata on either side of the events."""
    indent = draw(st.sampled_from(["", " ", "\n  "]))
    events = dumps(draw(st.lists(sound_event(), min_size=least, max_size=12)), indent)
    if draw(st.booleans()):
        return events.encode("utf-8", "surrogatepass")
    before, after = (dumps(draw(METADATA), indent)[1:-1] for _ in range(2))
    parts = [part for part in (before, f'"traceEvents": {events}', after) if part]
    return ("{" + f",{indent}".join(parts) + "}").encode("utf-8", "surrogatepass")


def blocks_of(data: bytes, size: int) -> Iterable[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def reading(data: bytes, size: int) -> tuple[list[tuple[Any, ...]], Decoder, list[str]]:
    decoder, builder = Decoder(), Builder(python=True)
    for piece in decoder.feed(blocks_of(data, size)):
        builder.add(piece)
    table, origin, notes = assemble(list(Reading.of(decoder, builder).parts))
    return [(origin, *row) for row in rows(table)], decoder, notes


def one_line(text: str) -> str:
    assert "\n" not in text
    return text


def outcome(path: Path, data: bytes) -> Profile | str:
    path.write_bytes(data)
    try:
        profile = read_trace(path)
    except GobrrrError as error:
        return one_line(str(error))
    assert len(profile.ranks[0].events)
    assert not any("\n" in note for note in profile.notes)
    return profile


@pytest.fixture(params=[1 << 15, 64, 1], ids=lambda size: f"chunk{size}")
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Chunks so small that the patient way is taken within a trace of a few events."""
    monkeypatch.setattr(decode, "CHUNK_BYTES", request.param)
    return int(request.param)


@QUICK
@given(data=sound_trace(), sizes=st.lists(st.integers(7, 400), min_size=1, max_size=3))
def test_blocks_of_any_size_give_the_same_table(chunk: int, data: bytes, sizes: list[int]) -> None:
    whole, decoder, notes = reading(data, 1 << 20)
    assert (decoder.found, decoder.ended, bool(decoder.lost)) == (True, True, False)
    for size in {7, *sizes}:
        found, other, said = reading(data, size)
        assert found == whole
        assert (other.prefix, other.suffix, other.events) == (decoder.prefix, decoder.suffix, decoder.events)
        assert (bool(other.lost), said) == (False, notes)


@QUICK
@given(data=sound_trace(), size=st.sampled_from([7, 100, 1 << 20]))
def test_every_event_is_there(data: bytes, size: int) -> None:
    value = json.loads(data)
    events = value if isinstance(value, list) else value["traceEvents"]
    assert reading(data, size)[1].events == len(events)


def whole_events(data: bytes) -> int:
    """Brute force: how many events stand whole in the first bytes of a trace."""
    text = data.decode("utf-8", "ignore")
    at = text.find("[") if text.lstrip().startswith("[") else text.find('"traceEvents": [') + len('"traceEvents": ')
    if at < 0 or (at == len('"traceEvents": ') - 1):
        return 0
    count, at = 0, at + 1
    while True:
        while at < len(text) and text[at] in " \n,":
            at += 1
        try:
            _, at = json.JSONDecoder(strict=False).raw_decode(text, at)
        except ValueError:
            return count
        count += 1


@QUICK
@given(data=sound_trace(least=1), where=st.floats(0, 1), size=st.sampled_from([7, 64, 1 << 20]))
def test_a_cut_at_any_byte_keeps_every_whole_event(chunk: int, data: bytes, where: float, size: int) -> None:
    cut = data[: int(where * len(data))]
    _, decoder, _ = reading(cut, size)
    if decoder.found:
        assert decoder.events == whole_events(cut)
        assert decoder.lost.bytes == 0
    else:
        assert whole_events(cut) == 0


def flip(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes([data[at] ^ value]) + data[at + 1 :]


def insert(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes([value]) * (value % 3 + 1) + data[at:]


def delete(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + data[at + value % 9 + 1 :]


def swap(data: bytes, at: int, value: int) -> bytes:
    other = value * 31 % len(data)
    first, last = sorted((at, other))
    return data[last:] + data[first:last] + data[:first]


Mutation = tuple[Callable[[bytes, int, int], bytes], float, int]
MUTATIONS = st.lists(
    st.tuples(
        st.sampled_from([flip, insert, delete, swap]),
        st.floats(0, 1, exclude_max=True),
        st.sampled_from([*b'{}[],:"\\', 0xFF, 0x80]) | st.integers(1, 255),
    ),
    min_size=1,
    max_size=6,
)


def mutated(data: bytes, mutations: list[Mutation]) -> bytes:
    for change, where, value in mutations:
        data = change(data, int(where * len(data)), value) or b"{"
    return data


@QUICK
@given(data=sound_trace(least=1), mutations=MUTATIONS)
def test_damage_gives_a_profile_or_one_line(tmp_path: Path, data: bytes, mutations: list[Mutation]) -> None:
    outcome(tmp_path / "t.json", mutated(data, mutations))


@QUICK
@given(data=sound_trace(least=1), mutations=MUTATIONS)
def test_damage_costs_the_same_events_in_blocks_of_any_size(chunk: int, data: bytes, mutations: list[Mutation]) -> None:
    broken = mutated(data, mutations)
    found = [reading(broken, size) for size in (7, 50, 1 << 20)]
    assert found[0][0] == found[1][0] == found[2][0]
    assert len({bool(decoder.lost) for _, decoder, _ in found}) == 1


@QUICK
@given(data=sound_trace(least=3), mutations=MUTATIONS, zipped=st.booleans(), where=st.floats(0, 1))
def test_broken_gzip_gives_a_profile_or_one_line(
    tmp_path: Path, data: bytes, mutations: list[Mutation], zipped: bool, where: float
) -> None:
    packed = gzip.compress(data)
    outcome(tmp_path / "t.gz", mutated(packed, mutations) if zipped else packed[: int(where * len(packed))])


ANYTHING = NESTED | st.floats() | st.text() | st.sampled_from(["NaN", "1e999", "-0", "1_0", "٣", "0x10", "9" * 5000])
KEYS = ["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"]
ARGUMENTS = ["External id", "correlation", "device", "stream", "bytes", "Input Dims", "Collective name", "dtype"]


@QUICK
@given(
    events=st.lists(
        st.fixed_dictionaries({"ph": st.sampled_from(["X", "B", "E"]) | ANYTHING},
                              optional=dict.fromkeys(KEYS[1:], ANYTHING))
        | st.builds(lambda event, args: event | {"args": args}, sound_event(),
                    st.dictionaries(st.sampled_from(ARGUMENTS), ANYTHING))
        | ANYTHING,
        max_size=8,
    ),
    around=METADATA | st.dictionaries(st.sampled_from(["deviceProperties", "distributedInfo"]), ANYTHING),
    indent=st.sampled_from([" ", "\n "]),
)  # fmt: skip
@example(events=[{"ph": "X", "cat": "kernel", "ts": "\ud800", "dur": "1"}], around={}, indent=" ")
@example(
    events=[{"ph": "X", "cat": "\ud800", "name": ["\ud800"], "pid": "\udfff", "ts": 1, "dur": 1}], around={}, indent=" "
)
def test_values_of_any_type(tmp_path: Path, events: list[Any], around: dict[str, Any], indent: str) -> None:
    outcome(tmp_path / "t.json", dumps(around | {"traceEvents": events}, indent).encode("utf-8", "surrogatepass"))


@QUICK
@given(data=st.binary(max_size=300) | st.text(alphabet='{}[]",:\\ ph1traceEvents\n', max_size=200).map(str.encode))
def test_garbage(tmp_path: Path, data: bytes) -> None:
    outcome(tmp_path / "t.json", data)
    outcome(tmp_path / "t.json", b'{"traceEvents": [' + data)


def test_duplicate_keys_mean_the_last(tmp_path: Path) -> None:
    event = b'{"ph": "M", "ph": "X", "cat": "kernel", "ts": 1, "ts": 5, "dur": 2, "args": 3, "args": {"device": 1}}'
    profile = outcome(
        tmp_path / "t.json", b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1, "dur": 1},' + event + b"]}"
    )
    assert isinstance(profile, Profile)
    events = profile.ranks[0].events
    assert (events.start_ns.tolist(), events.device.tolist()) == ([0, 4000], [-1, 1])


def test_deep_nesting(tmp_path: Path) -> None:
    deep = b"[" * 200_000 + b"]" * 200_000
    good = b'{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2}'
    for key in (b'"args": ', b'"pid": ', b'"name": '):
        data = b'{"traceEvents": [' + good + b', {"ph": "X", "ts": 3, "dur": 1, ' + key + deep + b"}," + good + b"]}"
        assert isinstance(outcome(tmp_path / "t.json", data), Profile)
    assert isinstance(outcome(tmp_path / "t.json", b'{"x": ' + deep + b', "traceEvents": [' + good + b"]}"), Profile)


@settings(QUICK, max_examples=examples(100, ci=10))
@given(data=sound_trace(least=6), mutations=MUTATIONS, damage=st.booleans())
def test_two_processes_read_what_one_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, mutations: list[Mutation], damage: bool
) -> None:
    path, data = tmp_path / "t.json", mutated(data, mutations) if damage else data
    monkeypatch.setattr(shards, "WORTH_IT_BYTES", 1 << 40)
    alone = outcome(path, data)
    monkeypatch.setattr(shards, "WORTH_IT_BYTES", 1)
    together = outcome(path, data)
    if isinstance(alone, str) or isinstance(together, str):
        assert alone == together
        return
    assert rows(alone.ranks[0].events) == rows(together.ranks[0].events)
    assert (alone.ranks[0].meta, alone.notes) == (together.ranks[0].meta, together.notes)
