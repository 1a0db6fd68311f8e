"""R02 and R03: work that had been done before, priced on the calls of the recorded steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gobrrr.analysis.detect.again import left_over
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.model.diagnosis import NotChecked
from gobrrr.model.recording import RecordedCall, Recording, RepeatedWork, Site
from gobrrr.model.work import OpCall, Tensor, Work
from tests.conditions.lives import ran
from tests.conditions.makers import seen_of
from tests.evidence import check, found, predict, watched
from tests.traces import Trace

LINE = "train.py(7): forward"
NAMES = ("aten::triu", "aten::mm", "aten::triu", "aten::mm", "aten::mm")
"""A mask in front of each of two products, and one product more."""


def masks(trace: Trace) -> None:
    for name in NAMES:
        if name == "aten::mm":
            trace.op(name, [[512, 512], [512, 512]], 100.0)
        else:
            trace.op(name, [[512, 512]], 30.0)


def looked(folder: Path, again: tuple[RepeatedWork, ...] | None, body: Callable[[Trace], None] = masks) -> Evidence:
    calls = tuple(RecordedCall(OpCall(name=name), "forward", 0) for name in NAMES)
    seen = Recording(
        target="", calls=calls, sites=(Site(user=LINE),), peak_bytes=0, start_bytes=0, module_calls=0, on_cpu=False,
        again=again,
    )  # fmt: skip
    return watched(ran(folder, body), seen=seen)


def mask(**given: object) -> RepeatedWork:
    first = {"kind": "steps", "source": LINE, "module": "Attention", "op": "aten::triu", "calls": (0, 2), "times": 2}
    return RepeatedWork(**{"of": "numbers", **first, **given})  # type: ignore[arg-type]


def test_masks_that_each_step_makes_vanish(tmp_path: Path):
    seen = looked(tmp_path, (mask(),))
    finding = found("R02", seen)
    # by hand: two masks of 30 us a step, and nothing idle in front of them
    assert finding.at_stake_ns == (pytest.approx(60e3, rel=0.07), pytest.approx(60e3, rel=0.07))
    assert finding.certainty == "high"
    place = finding.where[0]
    assert (place.op, place.module, place.source, place.count) == ("aten::triu", "Attention", LINE, 2)
    assert "shapes and constants" in finding.evidence[0]
    given = predict("compute-once", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns[1] == pytest.approx(60e3, rel=0.07)
    assert "train.py:7" in given.how
    assert "register_buffer" in given.how


def test_the_second_time_in_a_step_is_one_too_many(tmp_path: Path):
    seen = looked(tmp_path, (mask(kind="turns", calls=(2,)),))
    finding = found("R02", seen)
    assert finding.at_stake_ns[1] == pytest.approx(30e3, rel=0.07)
    assert "2 times in a step" in finding.evidence[0]
    given = predict("compute-once", seen, finding)
    assert given is not None
    assert "not 2 times" in given.how


@pytest.mark.parametrize(("of", "word"), [("weights", "parametrize"), ("tensors", "before the loop")])
def test_the_remedy_goes_by_what_it_is_made_of(of: str, word: str, tmp_path: Path):
    seen = looked(tmp_path, (mask(of=of),))
    given = predict("compute-once", seen, found("R02", seen))
    assert given is not None
    assert word in given.how


def test_where_nothing_is_done_again_nothing_is_said(tmp_path: Path):
    seen = looked(tmp_path, ())
    assert check("R02", seen) is None
    assert check("R03", seen) is None


def test_a_little_of_the_step_is_not_told(tmp_path: Path):
    def body(trace: Trace) -> None:
        masks(trace)
        trace.op("aten::add", [[512, 512], [512, 512]], 9000.0)

    assert check("R02", looked(tmp_path, (mask(),), body)) is None


def test_a_trace_does_not_know(tmp_path: Path):
    seen = seen_of(tmp_path, masks)
    assert isinstance(check("R02", seen), NotChecked)
    assert isinstance(check("R03", seen), NotChecked)


def test_rows_of_earlier_turns(tmp_path: Path):
    rows = mask(kind="rows", op=None, module="Block", calls=(3, 4), rows=((256, 512), (384, 512)), whole=True)
    seen = looked(tmp_path, (rows,))
    finding = found("R03", seen)
    # by hand: 1/2 and 3/4 of 100 us at the most; all three matrices have 512 rows, so that as much of the bytes goes
    assert finding.at_stake_ns[1] == pytest.approx(125e3, rel=0.03)
    assert finding.where[0].source == LINE
    assert "512 rows" in finding.evidence[0]
    given = predict("kv-cache", seen, finding)
    assert given is not None
    assert "use_cache=True" in given.how
    assert given.predicted_saving_ns[1] == pytest.approx(125e3, rel=0.03)


def tensors(*shapes: tuple[int, ...]) -> OpCall:
    return OpCall(name="aten::x", inputs=tuple(Tensor(shape, "float32") for shape in shapes))


def group(call: OpCall, family: str = "matmul") -> CallGroup:
    return CallGroup(call=call, work=Work(family=family, count="exact"), floor=None)


def test_what_a_product_still_moves_is_its_weight_and_the_new_rows() -> None:
    linear = tensors((4 * 65, 128), (128, 384))  # a batch of four
    assert left_over(group(linear), 64, 65) == pytest.approx((4 * 128 + 128 * 384) / (4 * 65 * 128 + 128 * 384))


def test_attention_still_reads_all_keys_and_values() -> None:
    attention = tensors(*[(4, 4, 65, 32)] * 3)
    assert left_over(group(attention, "attention"), 64, 65) == pytest.approx((1 / 65 + 2) / 3)
