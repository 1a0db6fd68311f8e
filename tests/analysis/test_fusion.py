"""Chains that a compiler could make one kernel of: hand-made sequences with the bytes by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gobrrr.analysis.events.links import link
from gobrrr.analysis.pricing.fusion import Chain, Fusion, find_chains, output_of
from gobrrr.analysis.pricing.price import price_all
from gobrrr.model.work import OpCall, Tensor
from gobrrr.observe.trace import read_trace
from tests.traces import Trace

SIZE = 2048 * 1024
ONE, TWO = [[2048, 1024]], [[2048, 1024], [2048, 1024]]
ROW = [[2048, 1024], [1024]]
LINEAR = [[2048, 512], [512, 1024]]
Call = tuple[str, list[list[int]]]


def chains(calls: list[Call], folder: Path, *, stream: list[int] | None = None, step: list[int] | None = None,
           dtype: str = "bfloat16") -> tuple[Chain, ...]:  # fmt: skip
    return fusion(calls, folder, stream=stream, step=step, dtype=dtype).chains


def fusion(calls: list[Call], folder: Path, *, stream: list[int] | None = None, step: list[int] | None = None,
           dtype: str = "bfloat16") -> Fusion:  # fmt: skip
    trace = Trace()
    for name, shapes in calls:
        trace.op(name, shapes, 50.0, dtype=dtype)
    events = read_trace(str(trace.write(folder))).ranks[0].events
    priced = price_all(events, link(events), None)
    same = np.zeros(len(calls), dtype=np.int64)
    return find_chains(
        priced.groups,
        priced.group,
        same if stream is None else np.array(stream),
        same if step is None else np.array(step),
    )


CHAIN: list[Call] = [("aten::mul", TWO), ("aten::add", TWO), ("aten::gelu", ONE)]


@pytest.mark.parametrize(("dtype", "item"), [("bfloat16", 2), ("float32", 4)])
def test_three_pointwise_calls_are_one_chain(dtype: str, item: int, tmp_path: Path):
    """Two intermediates of 2048 * 1024: written and read once each, so 4 times their size if none is kept."""
    (chain,) = chains(CHAIN, tmp_path, dtype=dtype)
    assert (chain.calls, chain.head) == ((0, 1, 2), False)
    assert chain.spared_low == 2 * SIZE * item
    assert chain.spared_high == 4 * SIZE * item


def test_bytes_as_run_and_fused_by_hand(tmp_path: Path):
    """As run mul and add move 3 and gelu 2 times the size; one kernel reads three tensors and writes one."""
    found = fusion(CHAIN, tmp_path)
    as_run, fused = (3 + 3 + 2) * SIZE * 2, (3 + 1) * SIZE * 2
    assert as_run - found.spared(kept=False) == fused
    # in training both intermediates are still written
    assert as_run - found.spared(kept=True) == fused + 2 * SIZE * 2


def test_a_broadcast_operand_does_not_break_a_chain(tmp_path: Path):
    (chain,) = chains([("aten::mul", ROW), ("aten::add", ROW), ("aten::relu", ONE)], tmp_path)
    assert chain.calls == (0, 1, 2)
    assert chain.spared_low == 2 * SIZE * 2


def test_another_shape_breaks_it(tmp_path: Path):
    other = [[1024, 1024]]
    found = chains([*CHAIN, ("aten::cos", other), ("aten::sin", other)], tmp_path)
    assert [chain.calls for chain in found] == [(0, 1, 2), (3, 4)]


def test_another_stream_breaks_it(tmp_path: Path):
    assert chains(CHAIN, tmp_path, stream=[7, 9, 7]) == ()
    (chain,) = chains(CHAIN, tmp_path, stream=[7, 7, 9])
    assert chain.calls == (0, 1)


def test_the_next_step_breaks_it(tmp_path: Path):
    found = chains([*CHAIN, *CHAIN], tmp_path, step=[0, 0, 0, 1, 1, 1])
    assert [chain.calls for chain in found] == [(0, 1, 2), (3, 4, 5)]


def test_a_matmul_ends_one_chain_and_heads_the_next(tmp_path: Path):
    calls: list[Call] = [
        ("aten::mul", TWO),
        ("aten::add", TWO),
        ("aten::mm", LINEAR),
        ("aten::gelu", ONE),
        ("aten::mul", TWO),
    ]
    first, second = chains(calls, tmp_path)
    assert (first.calls, first.head) == ((0, 1), False)
    assert (second.calls, second.head) == ((2, 3, 4), True)
    # an epilogue spares the matmul's output, and gelu's
    assert second.head_bytes == SIZE * 2
    assert second.spared_low == 2 * SIZE * 2
    alone = second.without_head()
    assert alone is not None
    assert (alone.calls, alone.spared_low, alone.spared_high) == ((3, 4), SIZE * 2, 2 * SIZE * 2)


def test_a_matmul_and_one_call_is_no_chain_without_its_head(tmp_path: Path):
    found = fusion([("aten::mm", LINEAR), ("aten::gelu", ONE)], tmp_path)
    (chain,) = found.chains
    assert chain.without_head() is None
    assert found.spared(kept=False) == found.spared(kept=True) == 0


@pytest.mark.parametrize(
    ("name", "shapes", "output"),
    [
        ("aten::mm", LINEAR, (2048, 1024)),
        ("aten::addmm", [[1024], *LINEAR], (2048, 1024)),
        ("aten::bmm", [[8, 2048, 512], [8, 512, 1024]], (8, 2048, 1024)),
        ("aten::baddbmm", [[8, 2048, 1024], [8, 2048, 512], [8, 512, 1024]], (8, 2048, 1024)),
    ],
)
def test_a_contraction_s_output(name: str, shapes: list[list[int]], output: tuple[int, ...]):
    call = OpCall(name=name, inputs=tuple(Tensor(shape=tuple(shape), dtype="bfloat16") for shape in shapes))
    assert output_of(call, "matmul") == (output, "bfloat16")


def test_a_matmul_whose_output_has_another_shape_is_no_head(tmp_path: Path):
    assert chains([("aten::mm", [[2048, 512], [512, 512]]), ("aten::gelu", ONE)], tmp_path) == ()


def test_a_single_call_is_no_chain(tmp_path: Path):
    assert chains([("aten::gelu", ONE)], tmp_path) == ()


def test_what_is_unknown_is_in_no_chain(tmp_path: Path):
    calls: list[Call] = [("aten::mul", TWO), ("custom::rope", TWO), ("aten::add", TWO)]
    assert chains(calls, tmp_path) == ()


def test_each_call_is_in_one_chain_at_most(tmp_path: Path):
    found = chains(CHAIN * 3 + [("aten::mm", LINEAR)] + CHAIN, tmp_path)
    members = [call for chain in found for call in chain.calls]
    assert len(members) == len(set(members))
