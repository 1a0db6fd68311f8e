"""M12: a mask as a tensor in fused attention, which only a live run can read."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.diagnosis import NotChecked
from gobrrr.model.live import TensorUse
from tests.conditions.lives import ran
from tests.conditions.makers import seen_of
from tests.evidence import check, found, predict
from tests.traces import Trace

OP = "aten::_scaled_dot_product_efficient_attention"
QUERY = [4, 16, 4096, 128]
FLOP = 2 * 2 * 4 * 16 * 4096 * 4096 * 128
PEAK = 989.4e12


def masked(share: float, op: str = OP) -> TensorUse:
    return TensorUse(kind="flagged_mask", op=op, source=None, module=None, shapes="[4096, 4096]", share=share, total=1)


def attention(trace: Trace, us: float = 4000.0) -> None:
    trace.op(OP, [QUERY, QUERY, QUERY, [4, 16, 4096, 4096]], us, host_us=10.0)


def seen_with(folder: Path, *uses: TensorUse, us: float = 4000.0) -> Evidence:
    return ran(folder, lambda trace: attention(trace, us), uses=uses)


@pytest.mark.parametrize(("share", "call"), [(0.5, "(q, k, v, is_causal=True)"), (1.0, "(q, k, v)")])
def test_a_mask_that_a_flag_replaces(tmp_path: Path, share: float, call: str):
    seen = seen_with(tmp_path, masked(share))
    finding = found("M12", seen)
    then = share * FLOP / PEAK * 1e9
    assert finding.at_stake_ns == (
        pytest.approx(max(4e6 - then / 0.15, 0), rel=0.02),
        pytest.approx(4e6 - then, rel=0.02),
    )
    given = predict("sdpa", seen, finding)
    assert given is not None
    assert call in given.how


def test_masks_that_are_needed_and_the_form_without_a_kernel_are_no_such_masks(tmp_path: Path):
    assert check("M12", seen_with(tmp_path)) is None
    assert check("M12", seen_with(tmp_path, masked(0.5, "aten::_scaled_dot_product_attention_math"))) is None
    assert check("M12", seen_with(tmp_path, masked(0.5), us=0.5 * FLOP / PEAK * 1e6)) is None  # as fast as can be


def test_a_trace_has_no_values(tmp_path: Path):
    assert isinstance(check("M12", seen_of(tmp_path, attention)), NotChecked)
