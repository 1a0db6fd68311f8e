"""C06: convolutions on a fallback kernel, by name and by what they reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.model.live import Switches
from tests.conditions.lives import live_of
from tests.conditions.makers import seen_of
from tests.evidence import certain, check, found, predict, watched
from tests.traces import Trace

DIRECT = "void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, false, false, 0, 0, int, __nv_bfloat16>"
GOOD = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_cudnn"


def convolve(trace: Trace, us: float, kernel: str) -> None:
    """64 images of 128 x 128 x 128 with 3 x 3 kernels: 309 GFLOP, 0.31 ms at 989 TFLOP/s."""
    shapes = [[64, 128, 128, 128], [128, 128, 3, 3], [], [], [], [], [], [], []]
    given = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    trace.op("aten::convolution", shapes, us, host_us=10.0, kernel=kernel, concrete=given)


def test_a_cliff_beside_healthy_layers(tmp_path: Path):
    def body(trace: Trace) -> None:
        for _ in range(4):
            convolve(trace, 600.0, GOOD)
        convolve(trace, 30_000.0, DIRECT)

    seen = certain(seen_of(tmp_path, body))
    finding = found("C06", seen)
    assert finding.certainty == "high"
    assert finding.where[0].count == 1
    # at the share of the others, their 600 us are what it takes
    assert finding.at_stake_ns[1] == pytest.approx(30e6 - 600e3, rel=0.01)
    assert finding.at_stake_ns[0] == pytest.approx(30e6 - 1200e3, rel=0.01)
    assert DIRECT[:40] in " ".join(finding.evidence)
    given = predict("cudnn-benchmark", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == (0.0, finding.at_stake_ns[1])
    other = predict("channels-last", seen, finding)
    assert other is not None
    assert other.predicted_saving_ns == (0.0, finding.at_stake_ns[1])
    assert "this layer alone" in other.how


def test_alone_the_share_is_assumed(tmp_path: Path):
    finding = found("C06", certain(seen_of(tmp_path, lambda trace: convolve(trace, 200_000.0, DIRECT))))
    assert finding.certainty == "medium"
    assert "is assumed" in finding.evidence[1]


@pytest.mark.parametrize(("us", "kernel"), [(30_000.0, GOOD), (3_000.0, DIRECT)])
def test_a_slow_good_kernel_and_a_fallback_that_does_well_are_healthy(tmp_path: Path, us: float, kernel: str):
    def body(trace: Trace) -> None:
        for _ in range(4):
            convolve(trace, 900.0, GOOD)
        convolve(trace, us, kernel)

    assert check("C06", certain(seen_of(tmp_path, body))) is None


def test_a_benchmark_that_is_on_leaves_the_layout(tmp_path: Path):
    def body(trace: Trace) -> None:
        for _ in range(4):
            convolve(trace, 600.0, GOOD)
        convolve(trace, 60_000.0, DIRECT)

    seen = certain(seen_of(tmp_path, body))
    seen = watched(seen, live=live_of(switches=Switches(cudnn_benchmark=True)))
    finding = found("C06", seen)
    assert "is on" in finding.evidence[-1]
    given = predict("cudnn-benchmark", seen, finding)
    assert given is not None
    assert "memory format" in given.how
