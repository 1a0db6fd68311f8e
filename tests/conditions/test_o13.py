"""O13: what holds the host beside launching, by what is called; and what is only launching."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gobrrr.analysis.host.holding import holders
from gobrrr.analysis.host.host_kinds import kind_of
from gobrrr.model.diagnosis import NotChecked
from gobrrr.model.recording import CallLine, OwnTime, Recording
from tests.conditions.lives import framed, ran
from tests.conditions.makers import seen_of
from tests.evidence import check, findings, found, predict, watched
from tests.traces import Trace

STEP = "train.py(12): step"


def small(trace: Trace, count: int = 20) -> None:
    for _ in range(count):
        trace.op("aten::mm", [[64, 64], [64, 64]], 2.0, host_us=20.0)


def held_by(*frames: str, us: float = 1000.0) -> Callable[[Trace], None]:
    """A launch-bound step that is in a frame, within the others, for a time."""

    def inner(trace: Trace, left: tuple[str, ...]) -> None:
        if left:
            framed(trace, left[0], lambda: inner(trace, left[1:]))
        else:
            trace.now += us

    def body(trace: Trace) -> None:
        def step() -> None:
            inner(trace, frames)
            small(trace)

        framed(trace, STEP, step)

    return body


KINDS = [
    ("<built-in method tensor of type object at 0x7f00>", "tensor()", "element by element"),
    ("<built-in function sleep>", "sleep()", "sleeps"),
    ("/usr/lib/python3.11/copy.py(128): deepcopy", "deepcopy()", "copies Python objects"),
    ("/usr/lib/python3.11/subprocess.py(506): run", "run()", "waits for another process"),
    ("<built-in method acquire of _thread.lock object at 0x7f00>", "acquire()", "waits for another thread"),
    ("<built-in method recv of _socket.socket object at 0x7f00>", "recv()", "waits for the network"),
    ("<built-in method readline of _io.TextIOWrapper object at 0x7f00>", "readline()", "reads files"),
    ("PIL/Image.py(3000): open", "open()", "images"),
    ("transformers/tokenization_utils_base.py(2800): __call__", "__call__()", "tokenizes"),
    ("torch/distributions/distribution.py(40): __init__", "__init__()", "arguments of a distribution"),
    ("/usr/lib/python3.11/json/__init__.py(299): loads", "loads()", "deserializes"),
    ("<built-in function array>", "array()", "NumPy"),
    ("<built-in method random of Random object at 0x7f00>", "random()", "random numbers"),
    ("torch/serialization.py(900): save", "save()", "writes tensors to a file"),
    ("/usr/lib/python3.11/threading.py(450): acquire", "acquire()", "waits for another thread"),
    ("/usr/lib/python3.11/re/__init__.py(210): findall", "findall()", "processes text"),
    ("<built-in method findall of re.Pattern object at 0x7f00>", "findall()", "processes text"),
    ("pandas/core/frame.py(3800): __getitem__", "__getitem__()", "data frames"),
    ("pandas/io/parsers/readers.py(600): read_csv", "read_csv()", "reads files"),
    ("torch/_tensor_str.py(600): _str", "_str()", "numbers as text"),
    ("torch/nn/modules/module.py(2000): state_dict", "state_dict()", "collects or loads the model's state_dict()"),
    ("torch/nn/modules/module.py(2700): parameters", "parameters()", "modules and parameters"),
    ("torch/nn/modules/module.py(2900): eval", "eval()", "modules and parameters"),
    ("<built-in function decompress>", "decompress()", "compresses"),
    ("<built-in method execute of sqlite3.Cursor object at 0x7f00>", "execute()", "a database"),
    ("/usr/lib/python3.11/asyncio/runners.py(160): run", "run()", "event loop"),
    ("<built-in function sorted>", "sorted()", "one by one"),
]  # fmt: skip


@pytest.mark.parametrize(("frame", "what", "does"), KINDS, ids=[one[1] + one[2] for one in KINDS])
def test_what_holds_the_host_is_named_by_what_is_called(frame: str, what: str, does: str, tmp_path: Path):
    seen = ran(tmp_path, held_by(frame))
    finding = found("O13", seen)
    assert (finding.where[0].op, finding.where[0].source) == (what, STEP)
    assert does in finding.evidence[0]
    assert finding.treatments == ["free-host"]
    # by hand: 1 ms in the frame, of a step of 20 launches of 20 us beside it
    assert finding.at_stake_ns == (0, pytest.approx(1e6, rel=0.03))
    given = predict("free-host", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == (0, pytest.approx(1e6, rel=0.03))
    assert "train.py:12" in given.how


def test_a_methods_line_is_that_of_its_call(tmp_path: Path):
    """`parameters()` works by itself, and is no part of a module's call."""
    seen = ran(tmp_path, held_by("torch/nn/modules/module.py(2700): parameters"))
    looked = Recording(
        target="", calls=(), sites=(), peak_bytes=0, start_bytes=0, module_calls=0, on_cpu=False,
        lines=(CallLine(caller=STEP, callee="parameters", source="train.py(14): step"),),
    )  # fmt: skip
    where = found("O13", watched(seen, seen=looked)).where[0]
    assert (where.source, where.count) == ("train.py(14): step", None)  # how often it is resumed counts no calls


def test_what_only_waits_is_called_waiting(tmp_path: Path):
    assert "waits" in found("O13", ran(tmp_path, held_by("<built-in function sleep>"))).title
    assert "waits" not in found("O13", ran(tmp_path, held_by("<built-in function array>"))).title


def test_a_kind_is_that_of_the_outermost_call(tmp_path: Path):
    poll = "<built-in method poll of select.poll object at 0x7f00>"
    finding = found("O13", ran(tmp_path, held_by("/usr/lib/python3.11/subprocess.py(506): run", poll)))
    assert finding.where[0].op == "run()"


def test_the_programs_own_function_has_a_line_and_no_treatment(tmp_path: Path):
    finding = found("O13", ran(tmp_path, held_by("train.py(4): own")))
    assert (finding.where[0].op, finding.where[0].source) == ("own()", "train.py(4): own")
    assert finding.at_stake_ns[1] == pytest.approx(1e6, rel=0.03)
    assert finding.treatments == []
    assert "not known" in finding.evidence[0]


@pytest.mark.parametrize(
    ("callee", "op", "words"),
    [("", "own()", "Python of the program itself"), ("normal", "normal()", "not known")],
)
def test_a_functions_own_time_is_at_the_line_that_has_most_of_it(callee: str, op: str, words: str, tmp_path: Path):
    seen = ran(tmp_path, held_by("train.py(4): own"))
    own = (OwnTime(caller="train.py(4): own", source="train.py(6): own", callee=callee),)
    looked = Recording(
        target="", calls=(), sites=(), peak_bytes=0, start_bytes=0, module_calls=0, on_cpu=False, own=own
    )
    finding = found("O13", watched(seen, seen=looked))
    assert (finding.where[0].op, finding.where[0].source) == (op, "train.py(6): own")
    assert words in finding.evidence[0]
    assert finding.treatments == []
    assert ("program's own Python" in finding.title) == (not callee)


def test_a_function_that_was_not_seen_to_have_time_of_its_own_keeps_its_name(tmp_path: Path):
    seen = ran(tmp_path, held_by("train.py(4): own"))
    own = (OwnTime(caller="train.py(40): other", source="train.py(46): other", callee=""),)
    looked = Recording(
        target="", calls=(), sites=(), peak_bytes=0, start_bytes=0, module_calls=0, on_cpu=False, own=own
    )
    finding = found("O13", watched(seen, seen=looked))
    assert (finding.where[0].op, finding.where[0].source) == ("own()", "train.py(4): own")
    assert "program's own" not in finding.title


def test_a_remedy_promises_nothing_for_the_time_that_has_no_kind(tmp_path: Path):
    def both(trace: Trace) -> None:
        held_by("<built-in function sleep>", us=500.0)(trace)
        held_by("train.py(4): own")(trace)

    seen = ran(tmp_path, both)
    finding = found("O13", seen)
    assert [one.op for one in finding.where] == ["own()", "sleep()"]
    given = predict("free-host", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == (0, pytest.approx(0.5e6, rel=0.03))


def test_what_one_step_alone_has_is_not_the_programs(tmp_path: Path):
    """A thread that waits for a processor does so anywhere: in one of three steps here."""
    steps = iter([0.0, 1000.0, 0.0])

    def body(trace: Trace) -> None:
        held_by("train.py(4): own", us=next(steps))(trace)

    assert check("O13", ran(tmp_path, body)) is None


@pytest.mark.parametrize(
    ("kept", "told"), [("/usr/lib/python3.11/copy.py(128): deepcopy", True), ("train.py(4): own", False)]
)
def test_a_line_of_a_known_kind_is_held_against_the_usual_step(kept: str, told: bool, tmp_path: Path):
    """One of three steps waits for a processor, 50 ms long: the usual one has a third of itself in this line."""
    waits = iter([0.0, 50_000.0, 0.0])

    def body(trace: Trace) -> None:
        held_by(kept, us=300.0)(trace)
        trace.now += next(waits)

    assert bool(holders(ran(tmp_path, body))) == told


def test_two_calls_of_a_kind_on_one_line_are_told_together(tmp_path: Path):
    def body(trace: Trace) -> None:
        def both() -> None:
            for name, us in (("load", 60.0), ("loads", 90.0)):
                frame = f"/usr/lib/python3.11/pickle.py(12): {name}"
                framed(trace, frame, lambda us=us: setattr(trace, "now", trace.now + us))
            small(trace, 40)

        framed(trace, STEP, both)

    (place,) = found("O13", ran(tmp_path, body)).where
    assert place.op == "loads()"
    assert place.ns > 100e3  # more than either of them


def test_python_between_launches_is_launching(tmp_path: Path):
    def body(trace: Trace) -> None:
        def step() -> None:
            for _ in range(20):
                framed(trace, "model.py(9): forward", lambda: small(trace, 1))
                framed(trace, "model.py(30): scale", lambda: None)
                trace.now += 30.0

        framed(trace, STEP, step)

    assert check("O13", ran(tmp_path, body)) is None


def test_the_host_is_free_while_the_device_works(tmp_path: Path):
    """A sleep that the device works through costs nothing."""

    def body(trace: Trace) -> None:
        def step() -> None:
            trace.op("aten::mm", [[4096, 4096], [4096, 4096]], 4000.0)
            framed(trace, "<built-in function sleep>", lambda: setattr(trace, "now", trace.now + 1000.0))
            small(trace)

        framed(trace, STEP, step)

    assert check("O13", ran(tmp_path, body)) is None


def test_torchs_own_python_and_the_profilers_is_not_the_programs(tmp_path: Path):
    for frame in ("torch/optim/adam.py(200): step", "nn.Module: Linear_0", "<frozen importlib._bootstrap>(1): _load"):
        assert check("O13", ran(tmp_path, held_by(frame))) is None, frame
    observed = held_by("torch/profiler/profiler.py(700): step", "<built-in function sleep>")
    assert check("O13", ran(tmp_path, observed)) is None


def test_a_report_is_a_report_and_loading_is_loading(tmp_path: Path):
    assert check("O13", ran(tmp_path, held_by("<built-in function print>"))) is None

    def loads(trace: Trace) -> None:
        def step() -> None:
            framed(trace, "torch/utils/data/dataloader.py(700): __next__", lambda: trace.load(2000.0))
            small(trace)

        framed(trace, STEP, step)

    assert check("O13", ran(tmp_path, loads)) is None


def test_a_pipe_is_no_report(tmp_path: Path):
    """The same frames with and without what a live run knows of the file object."""
    name = "<built-in method flush of _io.TextIOWrapper object at 0x7f10>"
    seen = ran(tmp_path, held_by(name))
    assert found("O12", seen).where[0].op == "writing a file"
    assert check("O13", seen) is None
    recording = Recording(
        target="", calls=(), sites=(), peak_bytes=0, start_bytes=0, module_calls=0, on_cpu=False,
        streams={"0x7f10": "pipe"},
    )  # fmt: skip
    piped = watched(seen, seen=recording)
    assert check("O12", piped) is None
    assert "a pipe or a socket" in found("O13", piped).evidence[0]


def test_launching_keeps_what_launching_has(tmp_path: Path):
    seen = ran(tmp_path, held_by("train.py(4): own"))
    settled = {one.code: one for one in findings(seen)}
    assert sum(one.at_stake_ns[1] for one in settled.values()) <= seen.wall_ns
    assert settled["O13"].at_stake_ns[1] == pytest.approx(1e6, rel=0.03)
    assert settled["O01"].at_stake_ns[1] < 20 * 20e3 * 1.1


def test_frames_are_needed(tmp_path: Path):
    assert isinstance(check("O13", seen_of(tmp_path, small)), NotChecked)


@pytest.mark.parametrize(
    "name",
    ["train.py(3): sleep", "/home/me/project/copy_utils.py(128): deepcopy", "<built-in function len>",
     "<built-in method add of type object at 0x7f00>", "torch/nn/functional.py(1): linear"],
)  # fmt: skip
def test_what_has_no_kind(name: str):
    assert kind_of(name, {}) is None
