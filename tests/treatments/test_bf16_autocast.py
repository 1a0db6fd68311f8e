"""What casts cost the host under autocast."""

from __future__ import annotations

import numpy as np
import pytest

from gobrrr.analysis.path import launch_call_ns
from gobrrr.guarded import Parts
from gobrrr.model.work import Tensor
from gobrrr.treatments.asking import asked
from gobrrr.treatments.bf16_autocast import CAST_CALLS, cast_ns, operands
from tests.analysis.tables import HOLDOUT
from tests.conftest import H100
from tests.treatments.test_together import examined

LSTM = next(path for path in HOLDOUT if path.name.startswith("cudnn_lstm"))


def test_each_operand_of_a_call_is_cast_once_however_many_kernels_it_has():
    """An LSTM is one call of thousands of kernels; a linear layer has three operands, a product two."""
    evidence, found = examined(LSTM).evidence, examined(LSTM).found
    [plan] = [
        plan
        for _, one, plan in asked("bf16-autocast", evidence, found, Parts())
        if one is None or one.finding.code == "C01"
    ]
    graph = evidence.graph
    more = float(plan.effect(0.5)(graph).left.sum() - graph.left.sum())
    single = np.array([one.work.matrix_dtype in ("float32", "tf32") for one in evidence.priced.groups])
    assert evidence.calls.kernels[evidence.calls_where(single)].sum() > 1_000
    operands = [min(sum(one.dtype == "float32" for one in group.call.tensors), 3) for group in evidence.priced.groups]
    casts = np.array(operands)[evidence.calls.group[evidence.calls_where(single)]].sum()
    assert more == pytest.approx(casts * CAST_CALLS * launch_call_ns(evidence), rel=0.01)


def test_what_is_cast_of_a_contraction():
    single, half = Tensor(shape=(8, 8), dtype="float32"), Tensor(shape=(8, 8), dtype="bfloat16")
    assert operands([single, single, single, single]) == 3
    assert operands([single, half]) == 1
    assert operands([]) == 0


def test_a_compiler_fuses_them():
    assert cast_ns(examined(H100 / "vit_b16_b64.fwd_compiled.json.gz").evidence) == 0.0
    assert cast_ns(examined(H100 / "vit_b16_b64.fwd.json.gz").evidence) > 0.0
