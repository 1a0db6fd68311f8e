"""C07: an operation that holds the step, with what is known of its slow form; and steps that none holds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from gobrrr.conditions.common import as_far_as_priced
from tests.conditions.lives import framed, ran
from tests.conditions.makers import extra, seen_of, shipped
from tests.conditions.test_on_cpu import on_cpu
from tests.evidence import certain, check, claimed, findings, found, predict
from tests.traces import Trace

MASK = [[8, 400, 400]]


def others(trace: Trace, us: float = 100.0) -> None:
    for _ in range(4):
        trace.op("aten::mm", [[512, 512], [512, 512]], us)


def with_op(name: str, us: float, inner: str | None = None, **given: object) -> Callable[[Trace], None]:
    """A step with 400 us of matmuls, and an operation of `us` that may be within another."""

    def body(trace: Trace) -> None:
        if inner is None:
            trace.op(name, MASK, us, **given)  # type: ignore[arg-type]
        else:
            with trace.inside(name):
                trace.op(inner, MASK, us, **given)  # type: ignore[arg-type]
        others(trace)

    return body


FORMS = [
    ("aten::nonzero", None, "positions"), ("aten::index", "aten::nonzero", "positions"),
    ("aten::masked_select", "aten::nonzero", "positions"), ("aten::_unique2", None, "distinct"),
    ("aten::multinomial", None, "each draw"), ("aten::svd", "aten::linalg_svd", "decomposes"),
    ("aten::upsample_bilinear2d_backward", None, "to each element of the small"),
    ("aten::sort", None, "sorts"), ("aten::argsort", "aten::sort", "sorts"),
    ("aten::repeat_interleave", "aten::index_select", "repeats"), ("aten::linalg_eigh", "aten::_linalg_eigh", "decomp"),
    ("aten::one_hot", "aten::scatter_", "zeros"), ("aten::constant_pad_nd", "aten::fill_", "edge"),
    ("aten::_slow_conv2d_forward", None, "no kernel"), ("aten::_sparse_mm", "aten::mm", "sparse"),
    ("aten::_scaled_dot_product_attention_math", "aten::matmul", "unfused"), ("aten::randperm", None, "random"),
    ("aten::repeat", "aten::copy_", "repetition"), ("aten::embedding_renorm_", None, "norms"),
    ("aten::kthvalue", None, "one value"), ("aten::median", None, "one value"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "inner", "slow"), FORMS, ids=[one[0] for one in FORMS])
def test_an_operation_of_a_slow_form_is_named_as_the_program_calls_it(
    name: str, inner: str | None, slow: str, tmp_path: Path
):
    seen = certain(seen_of(tmp_path, with_op(name, 1200.0, inner, dtype="float32")))
    finding = found("C07", seen)
    assert finding.where[0].op == name
    assert finding.where[0].count == 1
    assert slow in finding.evidence[0]
    assert finding.treatments == ["other-form"]
    # by hand: 1.2 ms, which is nearly all beyond its floor
    assert finding.at_stake_ns == (0, pytest.approx(1.2e6, rel=0.07))
    given = predict("other-form", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == (0, pytest.approx(1.2e6, rel=0.07))
    assert len(given.how) > 10


def test_it_has_the_line_of_the_program(tmp_path: Path):
    def body(trace: Trace) -> None:
        framed(trace, "train.py(6): step", lambda: with_op("aten::nonzero", 1200.0)(trace))

    seen = ran(tmp_path, body)
    finding = found("C07", seen)
    assert finding.where[0].source == "train.py(6): step"
    given = predict("other-form", seen, finding)
    assert given is not None
    assert "train.py:6" in given.how


def in_pieces(name: str, pieces: int) -> Callable[[Trace], None]:
    """A step with an operation that launches so many kernels of 2 us, each of which takes the host 20 us."""

    def body(trace: Trace) -> None:
        others(trace)
        with trace.inside(name):
            for _ in range(pieces):
                trace.op("aten::mm", [[3, 3], [3, 3]], 2.0, dtype="float32", host_us=20.0)

    return body


def test_an_operation_that_is_issued_piece_by_piece_holds_a_gpu_s_step(tmp_path: Path):
    seen = certain(seen_of(tmp_path, in_pieces("aten::linalg_qr", 200)))
    finding = found("C07", seen)
    assert finding.where[0].op == "aten::linalg_qr"
    assert "one matrix of a batch after the other" in finding.evidence[0]
    idle = seen.line("overhead", "launching") + seen.line("overhead", "python")
    assert finding.at_stake_ns == (0, pytest.approx(idle, rel=0.05))
    given = predict("other-form", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == (0, pytest.approx(idle, rel=0.1))
    assert "cholesky" in given.how


@pytest.mark.parametrize(("name", "pieces"), [("aten::linalg_qr", 12), ("aten::strange_thing", 200)])
def test_few_launches_and_operations_of_no_known_form_are_the_host_s_own_business(
    name: str, pieces: int, tmp_path: Path
):
    assert check("C07", certain(seen_of(tmp_path, in_pieces(name, pieces)))) is None


def test_products_of_integers(tmp_path: Path):
    assert "integers" in found("C07", seen_of(tmp_path, with_op("aten::mm", 1200.0, dtype="int64"))).evidence[0]


def convolution(trace: Trace, kernel: int, padding: int) -> None:
    given = ["", "", "", "[1]", f"[{padding}]", "[1]", "False", "[0]", "1"]
    shapes = [[4, 1, 8000], [1, 1, kernel], [], [], [], [], [], [], []]
    trace.op("aten::convolution", shapes, 1200.0, concrete=given, dtype="float32")
    others(trace)


def test_a_convolution_with_a_long_kernel(tmp_path: Path):
    """By hand: 384 MFLOP, or nine transforms of 11,999 numbers and a product, 3.8 MFLOP: 100 times as many."""
    seen = seen_of(tmp_path, partial(convolution, kernel=4000, padding=3999))
    finding = found("C07", seen)
    assert "long kernel" in finding.evidence[0]
    given = predict("other-form", seen, finding)
    assert given is not None
    assert "torch.fft" in given.how


@pytest.mark.parametrize(("kernel", "padding"), [(3, 1), (64, 63), (4000, 0)])
def test_a_convolution_that_transforms_do_not_make_much_cheaper(kernel: int, padding: int, tmp_path: Path):
    """Without padding the same kernel takes a third of the sums: 33 times as many FLOPs as transforms."""
    assert check("C07", seen_of(tmp_path, partial(convolution, kernel=kernel, padding=padding))) is None


def test_an_operation_of_no_known_form_has_a_share_and_no_treatment(tmp_path: Path):
    finding = found("C07", seen_of(tmp_path, with_op("aten::strange_thing", 1200.0)))
    assert finding.where[0].op == "aten::strange_thing"
    assert finding.treatments == []
    assert "no slow form of it is known" in finding.evidence[0]


@pytest.mark.parametrize(
    ("name", "us"), [("aten::nonzero", 60.0), ("aten::strange_thing", 300.0), ("aten::mm", 4000.0), ("aten::add", 4e3)]
)
def test_a_step_that_no_such_operation_holds_is_healthy(name: str, us: float, tmp_path: Path):
    """A little of a slow form; half of something; what other conditions judge."""
    assert check("C07", seen_of(tmp_path, with_op(name, us))) is None


def test_an_index_by_positions_is_no_mask(tmp_path: Path):
    assert check("C07", seen_of(tmp_path, with_op("aten::index", 300.0))) is None


def test_the_host_may_hide_it(tmp_path: Path):
    """Behind a host that is slower than the device nothing of it is at stake."""

    def body(trace: Trace) -> None:
        for _ in range(20):
            trace.op("aten::nonzero", MASK, 30.0, host_us=500.0)

    result = claimed("C07", certain(seen_of(tmp_path, body)))
    assert result is None or result.finding.at_stake_ns[1] < 20 * 30e3  # type: ignore[union-attr]


def test_on_a_processor_it_needs_no_prices_and_comes_before_its_threads(tmp_path: Path):
    def body(trace: Trace) -> None:
        trace.op("aten::nonzero", MASK, 12_000.0, dtype="bool", host_us=20.0, kernel="CPU aten::nonzero")
        others(trace, 1000.0)

    seen = on_cpu(seen_of(tmp_path, body))
    result = as_far_as_priced("C07", seen, claimed("C07", seen))
    assert result is not None
    settled = {one.code: one for one in findings(seen)}
    assert settled["C07"].at_stake_ns[1] == pytest.approx(12e6, rel=0.05)


HEALTHY = ("gpt2_b8_s1024.fwd", "pointwise_chain.faulty", "moe_host_loop.faulty", "holdout/resnet_nchw")


@pytest.mark.parametrize("name", HEALTHY)
def test_no_operation_holds_these_measured_steps(name: str):
    assert check("C07", extra(name) if "/" in name else shipped(name)) is None


def rows_one_by_one(name: str, us: float, trace: Trace) -> None:
    """An operation that dispatches 200 others which compute nothing, as `unique(dim=0)` goes through the rows."""
    with trace.inside(name):
        for row in range(200):
            trace.view("aten::select", [15_000, 2], ["0", str(row)], us / 200)
    others(trace, 100.0)


def test_what_a_processor_does_within_the_operation_is_the_operations(tmp_path: Path):
    seen = on_cpu(seen_of(tmp_path, partial(rows_one_by_one, "aten::unique_dim", 4000.0)))
    finding = found("C07", seen)
    assert finding.where[0].op == "aten::unique_dim"
    # at the most the 4 ms as recorded; recording 200 operations has a part of it
    assert 1e6 < finding.at_stake_ns[1] <= 4e6
    given = predict("other-form", seen, finding)
    assert given is not None
    low, high = given.predicted_saving_ns
    assert low == 0
    assert 0.5e6 < high <= finding.at_stake_ns[1]  # this trace's device works on while the host is in it


def test_what_it_dispatches_is_not_the_operations_where_it_is_little_or_a_gpu_waits(tmp_path: Path):
    assert check("C07", on_cpu(seen_of(tmp_path, partial(rows_one_by_one, "aten::unique_dim", 40.0)))) is None
    assert check("C07", on_cpu(seen_of(tmp_path, partial(rows_one_by_one, "aten::other_thing", 4000.0)))) is None
    assert check("C07", seen_of(tmp_path, partial(rows_one_by_one, "aten::unique_dim", 4000.0))) is None
