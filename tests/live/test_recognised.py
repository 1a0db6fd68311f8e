"""What conditions read out of a real profile: einsums' equations, checkpoints' second passes, waits that are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.checkpoint import checkpoint  # noqa: E402

from bench.cases import s03_clip_by_hand, s04_boolean_mask, s07_anchor_strides, s15_nan_check  # noqa: E402
from gobrrr.analysis.answer.study import study  # noqa: E402
from gobrrr.analysis.detect.chains import einsum_terms, orders  # noqa: E402
from gobrrr.analysis.detect.doubles import first_promotion  # noqa: E402
from gobrrr.analysis.findings.evidence import Evidence  # noqa: E402
from gobrrr.conditions.r01_checkpointing import recomputed_calls  # noqa: E402
from gobrrr.observe.live.options import WatchOptions  # noqa: E402
from gobrrr.observe.live.pull import pull  # noqa: E402
from gobrrr.observe.live.watcher import Watcher  # noqa: E402
from tests.live.look import CPU, codes, diagnosed  # noqa: E402

pytestmark = pytest.mark.torch
BRIEF = WatchOptions(warmup=1, most_warmup=2, window=2, profiled=1, look=False)


def seen(step: Callable[[], Any]) -> Evidence:
    watcher = Watcher(options=BRIEF)
    pull(watcher, step, (), {})
    return study(watcher.profile("step", "a CPU").ranks[0], CPU).evidence[0]


@pytest.mark.parametrize(
    ("equation", "shapes", "best"),
    [
        ("ij,jk,bk->bi", [(60, 50), (50, 40), (2, 40)], 2 * 2 * (50 * 40 + 60 * 50)),
        ("bsk,jk,ij->bsi", [(2, 3, 40), (50, 40), (60, 50)], 2 * 6 * (50 * 40 + 60 * 50)),
        ("ij,jk,k->i", [(60, 50), (50, 40), (40,)], 2 * (50 * 40 + 60 * 50)),
    ],
)
def test_an_einsum_s_equation_is_in_its_permutations(equation: str, shapes: list[tuple[int, ...]], best: int):
    """The closed form: the small operand goes first through each matrix."""
    from gobrrr.analysis.detect.chains import cheapest_path

    operands = [torch.randn(shape) for shape in shapes]
    evidence = seen(lambda: torch.einsum(equation, *operands))
    names = evidence.events.names
    row = next(row for row in range(len(evidence.events)) if names[evidence.events.name[row]] == "aten::einsum")
    terms = einsum_terms(evidence, row)
    assert terms is not None
    assert [len(one) for one in terms[0]] == [len(shape) for shape in shapes]
    assert cheapest_path(*terms)[0] == best


def test_an_einsum_from_left_to_right_is_named_and_the_other_order_is_not():
    if torch.backends.opt_einsum.is_available():
        pytest.skip("opt_einsum chooses the order")
    a, b, x = torch.randn(300, 200), torch.randn(200, 300), torch.randn(4, 300)
    found = orders(seen(lambda: torch.einsum("ij,jk,bk->bi", a, b, x)), 2.0)
    assert {one.kind for one in found} == {"einsum"}
    assert found[0].now_flop == 2 * 300 * 200 * 300 + 2 * 4 * 300 * 300
    assert found[0].best_flop == 2 * 4 * 200 * 300 + 2 * 4 * 300 * 200
    assert orders(seen(lambda: torch.einsum("bk,jk,ij->bi", x, b, a)), 2.0) == []


def blocks(reentrant: bool | None) -> Callable[[], Any]:
    torch.manual_seed(0)
    layers = torch.nn.ModuleList([torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()) for _ in range(3)])
    x = torch.randn(128, 64, requires_grad=True)

    def forward() -> Any:
        y = x
        for layer in layers:
            y = y + (layer(y) if reentrant is None else checkpoint(layer, y, use_reentrant=reentrant))
        return y.square().mean(), x

    return forward


@pytest.mark.parametrize("reentrant", [True, False])
def test_both_forms_of_a_checkpoint(reentrant: bool):
    forward = blocks(reentrant)
    evidence = seen(lambda: forward()[0].backward())
    names = {evidence.group_of(call).call.name for call in recomputed_calls(evidence).tolist()}
    assert "aten::addmm" in names
    assert not any("backward" in name for name in names)


def test_a_backward_pass_and_a_gradient_penalty_repeat_nothing():
    forward = blocks(None)
    assert not len(recomputed_calls(seen(lambda: forward()[0].backward())))

    def penalty() -> None:
        loss, x = forward()
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        (loss + gradient.square().sum()).backward()

    assert not len(recomputed_calls(seen(penalty)))


def test_the_first_promotion_of_a_real_step():
    x, scale = torch.randn(64, 64), torch.arange(1.0, 65.0, dtype=torch.float64)
    evidence = seen(lambda: torch.relu(x + 1.0) / scale)
    row = first_promotion(evidence)
    assert row is not None
    assert evidence.events.name_of(row) == "aten::div"
    assert first_promotion(seen(lambda: torch.relu(x + 1.0) / 2.0)) is None


@pytest.mark.parametrize("case", [s04_boolean_mask, s07_anchor_strides])
def test_the_forms_of_a_case_compute_the_same(case: Any):
    sick, healthy = (one("cpu").step for one in (case.faulty, case.fixed))
    torch.testing.assert_close(sick(), healthy())


@pytest.mark.parametrize("case", [s03_clip_by_hand, s04_boolean_mask, s07_anchor_strides, s15_nan_check])
def test_a_branch_on_a_value_waits_for_nothing_on_a_cpu(case: Any):
    found = diagnosed(case.faulty("cpu"), warmup=1, most_warmup=2, window=3, profiled=1, look=False)
    assert "O02" not in codes(found)
    assert not {one.treatment for one in found.prescriptions} & {"remove-sync", "cuda-graph"}
