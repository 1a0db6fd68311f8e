"""M07: the dense gradient of a large embedding."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.model.live import TensorUse
from tests.conditions.lives import ran
from tests.conditions.makers import seen_of, shipped, what_its_calls_lose
from tests.evidence import certain, check, found, predict
from tests.traces import Trace

TABLE = [1_000_000, 64]
UPDATES = ("aten::lerp_", "aten::mul_", "aten::sqrt", "aten::div", "aten::addcdiv_")


def training(trace: Trace, ids: int = 512, rows: int = 1_000_000, head: bool = False) -> None:
    table = [rows, 64]
    trace.op("aten::mm", [[4096, 4096]] * 2, 400.0)
    trace.op("aten::embedding", [table, [ids]], 5.0, dtypes=["float32", "int64"])
    if head:
        trace.op("aten::mm", [[ids, 64], [64, rows]], 50.0, dtype="float32")
    with trace.inside("autograd::engine::evaluate_function: EmbeddingBackward0"):
        trace.op("aten::zero_", [table], 80.0, dtype="float32")
        arguments = [[ids, 64], [ids], [], [], []]
        printed = ["", "", str(rows), "-1", "False"]
        types = ["float32", "int64", "float32", "float32", "float32"]
        trace.op("aten::embedding_dense_backward", arguments, 5.0, dtypes=types, concrete=printed)
    with trace.annotated("Optimizer.step#Adam.step"):
        for name in UPDATES:
            trace.op(name, [table, table], 160.0, dtype="float32")


def test_all_rows_are_updated_for_the_few_in_use(tmp_path: Path):
    seen = certain(seen_of(tmp_path, training))
    finding = found("M07", seen)
    whole = 80e3 + len(UPDATES) * 160e3
    assert finding.at_stake_ns[1] == pytest.approx(whole * (1 - 512 / 1_000_000), rel=0.02)
    assert 0 < finding.at_stake_ns[0] < finding.at_stake_ns[1]
    assert "1,000,000 x 64 (256 MB in float32), 512 ids a step" in finding.evidence[0]
    given = predict("sparse-embedding", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == what_its_calls_lose(finding)


def test_a_small_table_of_which_most_rows_are_used_is_healthy(tmp_path: Path):
    assert check("M07", seen_of(tmp_path, lambda trace: training(trace, ids=600_000))) is None


def test_a_table_that_is_the_output_layer_too_has_a_dense_gradient(tmp_path: Path):
    assert check("M07", seen_of(tmp_path, lambda trace: training(trace, head=True))) is None


def test_a_live_run_knows_which_rows_were_used(tmp_path: Path):
    def used(share: float) -> TensorUse:
        return TensorUse(
            kind="rows", op="aten::embedding_dense_backward", source="train.py(9): step", module="Embedding_0",
            shapes=str(TABLE), share=share, total=1_000_000,
        )  # fmt: skip

    # 300,000 ids, but of 1 % of the rows
    many = ran(tmp_path, lambda trace: training(trace, ids=300_000), uses=(used(0.01),))
    assert found("M07", many).where[0].source == "train.py(9): step"
    assert check("M07", ran(tmp_path, training, uses=(used(0.3),))) is None


@pytest.mark.parametrize("name", ["bert_base_b32_s512.fwdbwd", "gpt2_b8_s1024.fwdbwd"])
def test_language_models_have_none(name: str):
    assert check("M07", shipped(name)) is None
