"""M11: work on padding, which only a live run sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.model.diagnosis import NotChecked
from gobrrr.model.live import TensorUse
from tests.conditions.lives import ran
from tests.conditions.makers import seen_of, what_its_calls_lose
from tests.evidence import check, found, predict
from tests.traces import Trace

BATCH, LENGTH, WIDTH = 32, 512, 1024
TOKENS = BATCH * LENGTH


def padded(op: str, share: float, shapes: str = f"[{BATCH}, {LENGTH}]") -> TensorUse:
    return TensorUse(
        kind="padding", op=op, source="train.py(5): step", module=None, shapes=shapes, share=share, total=TOKENS
    )


IDS, MASK, LOSS = "aten::embedding", "aten::masked_fill", "aten::nll_loss_forward"


def layers(trace: Trace) -> None:
    for _ in range(4):
        trace.op("aten::mm", [[TOKENS, WIDTH], [WIDTH, WIDTH]], 200.0, host_us=10.0)
        trace.op("aten::gelu", [[BATCH, LENGTH, WIDTH]], 50.0, host_us=10.0)
    with trace.annotated("Optimizer.step#SGD.step"):
        trace.op("aten::add_", [[TOKENS, WIDTH]] * 2, 100.0, host_us=10.0)


def test_the_share_of_the_work_on_tokens(tmp_path: Path):
    seen = ran(tmp_path, layers, uses=(padded(IDS, 0.6), padded(LOSS, 0.62, f"[{TOKENS}]")))
    finding = found("M11", seen)
    # not the optimizer's, whatever the shape of its parameter
    assert finding.at_stake_ns == (0.0, pytest.approx(0.6 * 4 * 250e3, rel=0.02))
    assert finding.certainty == "high"
    assert finding.where[0].source == "train.py(5): step"
    given = predict("bucket-or-pack", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == what_its_calls_lose(finding)


def test_one_witness_is_less_sure(tmp_path: Path):
    assert found("M11", ran(tmp_path, layers, uses=(padded(MASK, 0.6),))).certainty == "medium"


@pytest.mark.parametrize("uses", [(), (padded(IDS, 0.05),), (padded(LOSS, 0.9, f"[{TOKENS}]"),)])
def test_little_padding_and_ignored_targets_are_healthy(tmp_path: Path, uses: tuple[TensorUse, ...]):
    assert check("M11", ran(tmp_path, layers, uses=uses)) is None


def test_a_trace_has_no_values(tmp_path: Path):
    result = check("M11", seen_of(tmp_path, layers))
    assert isinstance(result, NotChecked)
    assert "live run" in result.needs
