"""Tables of calls: what a trace's are, and that the measured ones of an H100 load and are known. Without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.op_table import MARK, contiguous, dumps, load, packed, table_of, unpacked
from gobrrr.cost import price
from gobrrr.model.work import Argument, Scalar, Tensor, TensorList
from tests.conftest import H100, ROOT
from tests.traces import Trace

RESULTS = ROOT / "bench" / "results"
KNOWN = 0.97
HANDED = ("bert_base_b32_s512", "gpt2_b8_s1024", "resnet50_b64_cl", "vit_b16_b64", "dit_xl_b8_s256")


def measured(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / name).read_text())
    return found


def tables(record: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    if "ops" in record:
        families: dict[str, list[dict[str, Any]]] = record["ops"]
        return families
    return {
        f"{name}.{mode}": entry[mode]["ops"]
        for name, entry in record["workloads"].items()
        for mode in ("fwd", "fwdbwd", "train")
        if mode in entry
    }


@pytest.mark.parametrize(
    "value",
    [
        Tensor((2, 3), "bfloat16", (3, 1)),
        Tensor((2, 3), "float32", (1, 2)),
        Tensor((4,), "int64", None),
        Tensor((), "float32"),
        Tensor((0, 3), "float32", (3, 1)),
        Scalar("[1, 1]"),
        Scalar(),
        TensorList((Tensor((2,), "", (1,)), Tensor((2,), "", (1,)), Tensor((5, 2), "", (2, 1)))),
        TensorList(()),
    ],
)
def test_an_argument_comes_back_from_json_as_it_was(value: Argument) -> None:
    assert unpacked(json.loads(json.dumps(packed(value)))) == value


def test_a_contiguous_tensor_needs_no_strides_and_equals_in_a_list_stand_once() -> None:
    assert packed(Tensor((2, 3), "bfloat16", (3, 1))) == ["bfloat16", [2, 3]]
    assert packed(TensorList((Tensor((2,), "", (1,)),) * 40)) == {"list": [[40, ["", [2]]]]}
    assert contiguous((2, 3, 4)) == (12, 4, 1)


def test_berts_table_has_its_linears_norms_and_attentions_and_all_of_its_kernels() -> None:
    labels = json.loads((H100 / "labels.json").read_text())["bert_base_b32_s512"]
    table = table_of(H100 / "bert_base_b32_s512.fwd.json.gz")
    calls: dict[str, int] = {}
    for row in table.rows:
        calls[row["op"]] = calls.get(row["op"], 0) + row["calls"]
    assert calls["aten::addmm"] == 12 * 6 + 1
    assert calls["aten::native_layer_norm"] == 12 * 2 + 1
    assert calls["aten::_cudnn_attention_forward"] == 12
    assert table.kernels == labels["fwd_kernels"] == sum(row["calls"] * row["kernels"] for row in table.rows)
    assert table.busy_ns / 1e6 == pytest.approx(labels["fwd_busy_ms"], abs=0.01)
    entry = load(table.rows)[0]
    assert entry.call.name == "aten::addmm"
    assert entry.call.inputs[1] == Tensor((16384, 768), "bfloat16", (768, 1))
    assert entry.call.inputs[2] == Tensor((768, 768), "bfloat16", (1, 768))


def trace_of_cases(path: Path) -> Path:
    trace = Trace()
    trace.op("aten::mm", [(8, 8), (8, 8)], 90.0)  # a warm-up: in no case
    for us in (10.0, 30.0, 20.0):
        with trace.annotated(MARK + "small"):
            trace.op("aten::mm", [(8, 8), (8, 8)], us)
        trace.op("aten::sum", [(99,)], 70.0)  # what empties the cache
    with trace.annotated(MARK + "lists"):
        trace.op("aten::_foreach_mul_", [(), ()], 5.0)
        trace.op("aten::_foreach_mul_", [(), ()], 6.0)
    return trace.write(path.parent, path.name)


def test_calls_belong_to_the_case_they_were_launched_in_and_their_time_is_the_median(tmp_path: Path) -> None:
    rows = table_of(trace_of_cases(tmp_path / "t.json")).rows
    small = [row for row in rows if row.get("case") == "small"]
    assert [(row["op"], row["calls"], row["ns"]) for row in small] == [("aten::mm", 3, 20_000)]
    assert {(row["op"], row["calls"]) for row in rows if "case" not in row} == {("aten::mm", 1), ("aten::sum", 3)}


def test_lists_found_in_another_run_take_the_place_of_dropped_ones_in_order(tmp_path: Path) -> None:
    first, second = ([{"list": [[40, [dtype, [7]]]]}, ""] for dtype in ("float32", "bfloat16"))
    path = trace_of_cases(tmp_path / "t.json")
    rows = table_of(path, {"lists": {"aten::_foreach_mul_": [first, second]}}).rows
    found = {row["ns"]: row["inputs"] for row in rows if row.get("case") == "lists"}
    assert found == {5_000: first, 6_000: second}
    three = {"lists": {"aten::_foreach_mul_": [first, second, first]}}
    (row,) = (row for row in table_of(path, three).rows if row.get("case") == "lists")
    assert row["calls"] == 2  # 2 calls are no multiple of 3: nothing is put in their place
    assert row["inputs"] not in (first, second)


def test_a_recorded_list_keeps_its_strides_and_is_given_its_types(tmp_path: Path) -> None:
    trace = Trace()
    trace.op("aten::cat", [(), ()], 5.0)
    arguments = next(event for event in trace.events if event["name"] == "aten::cat")["args"]
    arguments |= {
        "Input Dims": [[[4, 2], [4, 2]], []],
        "Input type": ["TensorList", "Scalar"],
        "Input Strides": [[[1, 4], [2, 1]], []],
        "Concrete Inputs": ["", "-1"],
    }
    other = [{"list": [[2, ["bfloat16", [4, 2]]]]}, "1"]
    (row,) = table_of(trace.write(tmp_path), {None: {"aten::cat": [other]}}).rows
    assert row["inputs"] == [{"list": [[1, ["bfloat16", [4, 2], [1, 4]]], [1, ["bfloat16", [4, 2]]]]}, "-1"]


def test_the_written_form_is_json_with_a_row_a_line() -> None:
    record = {
        "torch": "2.11",
        "workloads": {"a": {"fwd": {"ops": [{"op": "x"}, {"op": "y"}], "sync_ms": {"median": 1.5}}}},
    }
    text = dumps(record)
    assert json.loads(text) == record
    assert '\n{"op":"x"},\n{"op":"y"}\n' in text


@pytest.mark.parametrize("name", ["h100_models.json", "h100_ops.json"])
def test_the_measured_calls_load_and_nearly_all_of_their_time_is_counted(name: str) -> None:
    record = measured(name)
    assert "H100" in record["device"]
    total, known = 0.0, 0.0
    for rows in tables(record).values():
        for row, entry in zip(rows, load(rows), strict=True):
            assert [packed(one) for one in entry.call.inputs] == row["inputs"]
            total += entry.ns * entry.calls
            known += entry.ns * entry.calls * price(entry.call).known
    assert known / total >= KNOWN


def test_the_five_handed_workloads_are_the_same_steps() -> None:
    labels, workloads = json.loads((H100 / "labels.json").read_text()), measured("h100_models.json")["workloads"]
    for name in HANDED:
        for mode in ("fwd", "fwdbwd"):
            assert workloads[name][mode]["kernels"] == labels[name][f"{mode}_kernels"]
            assert workloads[name][mode]["busy_ms"] == pytest.approx(labels[name][f"{mode}_busy_ms"], rel=0.03)


def test_a_steps_table_adds_up_to_its_busy_time() -> None:
    """On one stream nothing overlaps. cuDNN's recurrent kernels run on several: their sum is more than that."""
    workloads = measured("h100_models.json")["workloads"]
    assert len(workloads) >= 16
    for name, entry in workloads.items():
        for mode in set(entry) - {"policy"}:
            step = entry[mode]
            assert sum(row["calls"] * row["kernels"] for row in step["ops"]) == step["kernels"], (name, mode)
            total = sum(row["calls"] * row["ns"] for row in step["ops"]) / 1e6
            assert total >= 0.95 * step["busy_ms"], (name, mode)
            assert total <= 1.05 * step["busy_ms"] or name.startswith("lstm"), (name, mode)
