"""A profile in a file: what is read back is what was there, so that a diagnosis of it is the same one."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from bench import stored_profile
from bench.predicted_ways import Told, foretold, named
from bench.stored_profile import pack, unpack
from gobrrr.doors import pipeline
from gobrrr.model.events import COLUMN_TYPES
from gobrrr.model.live import Live, StepTimes
from gobrrr.model.profile import Profile
from gobrrr.model.recording import (
    Assumption,
    CallLine,
    HeldMemory,
    OpTally,
    OwnTime,
    RecordedCall,
    RecordedLoop,
    Recording,
    RepeatedWork,
    SecondStep,
    Site,
    SurvivingResult,
)
from gobrrr.model.work import OpCall, Scalar, Tensor, TensorList
from gobrrr.observe.trace import read_trace
from gobrrr.report.json import to_json

SEEN = Recording(
    target="step",
    calls=(
        RecordedCall(
            call=OpCall(
                name="aten::cat",
                inputs=(TensorList((Tensor((2, 3), "float32", (3, 1)), Tensor((1, 3), "float32"))), Scalar("0")),
                outputs=(Tensor((3, 3), "float32"),),
                kernels=("sgemm",),
            ),
            phase="backward", site=0, place="host", waits=True, new_bytes=36,
        ),
    ),
    sites=(Site(("Net_0",), "a.py(1): f", None, ("Net.body",)),), peak_bytes=5, start_bytes=1, module_calls=2,
    on_cpu=False, assumptions=(Assumption("item", "1", None),), notes=("said",), versions={"torch": "2"},
    lines=(CallLine(caller="a.py(1): f", callee="cat", source="a.py(2): f"),), code={"a.py(2): f": "x = torch.cat(y)"},
    own=(OwnTime(caller="a.py(1): f", source="a.py(3): f", callee="choice"),),
    again=(RepeatedWork(kind="rows", source="a.py(2): f", module=None, op="aten::cat", calls=(0,), rows=((1, 2),)),),
    loops=(RecordedLoop(source="a.py(2): f", turns=(0, 1), depends="yes"),),
    later=SecondStep(
        first=(OpTally(op="aten::cat", source=None, count=1, elements=9),), second=(),
        held=(HeldMemory(step=3, nodes=None, tensors=2, bytes=36, device_bytes=None, hooks=0),),
        kept=(SurvivingResult(op="aten::cat", source=None, nodes=1, chain=False),), before=2,
    ), streams={"0x1": "pipe"}, seconds=0.5,
)  # fmt: skip


@pytest.fixture(scope="module")
def profile(h100: Path) -> Profile:
    return read_trace(str(h100 / "mlp_tiny.faulty.json.gz"))


def test_a_diagnosis_of_what_is_read_back_is_the_same(profile: Profile) -> None:
    data = pack(profile)
    assert to_json(pipeline.diagnose(unpack(data))) == to_json(pipeline.diagnose(profile))


def test_each_column_comes_back_and_the_pools_hold_what_is_used(profile: Profile) -> None:
    before, after = profile.ranks[0].events, unpack(pack(profile)).ranks[0].events
    for name, dtype in COLUMN_TYPES.items():
        assert getattr(after, name).dtype == dtype
    assert np.array_equal(before.start_ns, after.start_ns)
    assert [before.name_of(at) for at in range(50)] == [after.name_of(at) for at in range(50)]
    few = replace(profile, ranks=(replace(profile.ranks[0], events=before.take(np.arange(3))),))
    assert len(unpack(pack(few)).ranks[0].events.names) <= 3


def test_what_a_live_run_saw_comes_back(profile: Profile) -> None:
    times = StepTimes(wall_ns=1.0, low_ns=1.0, high_ns=2.0, ns=(1.0, 2.0), median_ns=1.5, mean_ns=1.5)
    live = Live(kind="cuda", times=times, warmup_steps=3, profiled_steps=3)
    whole = replace(profile, origin="live", ranks=(replace(profile.ranks[0], live=live, seen=SEEN),))
    rank = unpack(pack(whole)).ranks[0]
    assert rank.live == live
    assert rank.seen == SEEN
    given = {name: getattr(SEEN, name) for name in SEEN.__struct_fields__}
    assert not [name for name, one in given.items() if one in (None, (), {})]  # the sample has all there is


def test_another_format_and_other_bytes_are_refused(profile: Profile) -> None:
    with pytest.raises(ValueError, match="not a stored profile"):
        unpack(b"nothing")
    other = msgspec.msgpack.decode(lzma.decompress(pack(profile)))
    with pytest.raises(ValueError, match="of format 99"):
        unpack(lzma.compress(msgspec.msgpack.encode(other | {"format": 99})))
    assert stored_profile.FORMAT == 1


def test_a_column_that_a_file_lacks_says_nothing(profile: Profile) -> None:
    other = msgspec.msgpack.decode(lzma.decompress(pack(profile)))
    del other["ranks"][0]["columns"]["blocks"]
    events = unpack(lzma.compress(msgspec.msgpack.encode(other))).ranks[0].events
    assert set(events.blocks.tolist()) == {-1}


def test_ways_are_predicted_from_the_file_alone(profile: Profile) -> None:
    """What was measured of mlp_tiny stands in truth.json: as a graph it takes a fraction."""
    graph = Told(name="cuda-graph", treatment="cuda-graph", numerics="none", rank=70, as_if=("cuda-graph",))
    layout = Told(name="channels-last", treatment="channels-last", numerics="rounding", as_if=("channels-last",))
    ways = {one.name: one for one in (graph, layout)}
    both = named(("cuda-graph", "channels-last"), ways)
    assert both == "channels-last + cuda-graph"
    found = foretold(unpack(pack(profile)), ways, ["cuda-graph", "channels-last", both])
    assert found.regime == "overhead"
    assert found.step_ns is not None
    alone, together = found.savings["cuda-graph"], found.savings[both]
    assert alone is not None
    assert 0.3 * found.step_ns < alone.expected < found.step_ns
    assert alone.low <= alone.expected <= alone.high
    assert found.savings["channels-last"] is None  # there is no convolution
    assert together == alone
    assert json.dumps(found.savings["cuda-graph"])
