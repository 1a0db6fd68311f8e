"""What casts cost the host under autocast."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gobrrr.analysis.findings.path import launch_call_ns
from gobrrr.guarded import GuardedParts
from gobrrr.treatments.bf16_autocast import INFERENCE_CAST_COST, TRAINING_CAST_COST, cast_ns, casts_of
from gobrrr.treatments.framework.asking import asked
from tests.analysis.tables import HOLDOUT
from tests.conftest import H100
from tests.evidence import evidence_from
from tests.traces import Trace
from tests.treatments.test_together import examined

CONVOLUTION = [[8, 16, 32, 32], [16, 16, 3, 3], [16], [], [], [], [], [], []]
GIVEN = ("", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1")
LSTM = next(path for path in HOLDOUT if path.name.startswith("cudnn_lstm"))


def test_each_operand_of_a_call_is_cast_once_however_many_kernels_it_has():
    """An LSTM is one call of thousands of kernels; a linear layer has three operands, a product two."""
    evidence, found = examined(LSTM).evidence, examined(LSTM).found
    [plan] = [
        plan
        for _, one, plan in asked("bf16-autocast", evidence, found, GuardedParts())
        if one is None or one.finding.code == "C01"
    ]
    graph = evidence.graph
    more = float(plan.effect(0.5)(graph).left.sum() - graph.left.sum())
    single = np.array([one.work.matrix_dtype in ("float32", "tf32") for one in evidence.priced.groups])
    assert evidence.calls.kernels[evidence.calls_where(single)].sum() > 1_000
    operands = [min(sum(one.dtype == "float32" for one in group.call.tensors), 3) for group in evidence.priced.groups]
    casts = np.array(operands)[evidence.calls.group[evidence.calls_where(single)]].sum()
    each = TRAINING_CAST_COST if evidence.training else INFERENCE_CAST_COST
    assert more == pytest.approx(casts * each.value * launch_call_ns(evidence), rel=0.01)


@pytest.mark.parametrize(("norm", "convolved"), [(False, 3), (True, 2)])
def test_what_is_cast_of_a_contraction(tmp_path: Path, norm: bool, convolved: int):
    """A batch norm hands on 16 bits to the convolution behind it; what is in 16 bits is not cast."""
    trace = Trace()
    for number in range(3):
        with trace.step(number):
            trace.op("aten::convolution", CONVOLUTION, 20.0, dtype="float32", concrete=GIVEN)
            if norm:
                trace.op("aten::cudnn_batch_norm", [[8, 16, 32, 32], [16], [16]], 20.0, dtype="float32")
            trace.op("aten::addmm", [[64], [64, 64], [64, 64]], 20.0, dtype="float32")
            trace.op("aten::mm", [[64, 64], [64, 64]], 20.0)
            trace.synchronize()
    evidence = evidence_from(trace.write(tmp_path))
    casts = {one.call.name: cast for one, cast in zip(evidence.priced.groups, casts_of(evidence), strict=True)}
    assert casts["aten::convolution"] == convolved
    assert (casts["aten::addmm"], casts["aten::mm"]) == (3, 0)


def test_a_compiler_has_nothing_to_fuse_a_weight_s_cast_with():
    for form in ("fwd", "fwd_compiled"):
        assert cast_ns(examined(H100 / f"vit_b16_b64.{form}.json.gz").evidence) > 0.0
