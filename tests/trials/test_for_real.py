"""Small workloads that are treated for real on this CPU: three get faster, one gains nothing, one way is unsafe."""

from __future__ import annotations

import dataclasses
import itertools
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]  # the compiler's own

from torch import nn  # noqa: E402

import gobrrr  # noqa: E402
from gobrrr.model.treated import Treated  # noqa: E402
from gobrrr.treatments import catalogue  # noqa: E402
from gobrrr.treatments.framework.way import MODEL, TreatmentWay  # noqa: E402
from gobrrr.trials import candidates  # noqa: E402
from gobrrr.trials.arms import Arm  # noqa: E402
from tests.live.test_parity import kept_machine  # noqa: E402
from tests.trials.fakes import one_thread as one_thread  # noqa: E402

compiles = pytest.mark.skipif(
    not any(shutil.which(one) for one in ("g++", "clang++")), reason="torch.compile needs a C++ compiler on a CPU"
)
OTHERS = ("limit-threads", "larger-batch", "bf16-cast", "bf16-autocast", "gc-freeze")
"""Ways that say more of the machine than of the workload, and what a CPU without 16-bit units makes slower."""


@pytest.fixture(autouse=True)
def known_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ceilings that are written down: measuring them takes half a minute."""
    kept_machine(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def treated(workload: gobrrr.Workload, folder: Path, **options: Any) -> Treated:
    """Treated in this process, with a ledger of its own."""
    found = gobrrr.treat(workload, **{"budget": 60, "ledger": folder, "without": OTHERS, **options})
    print(found)  # shown where a test fails
    return found


def faster(found: Treated) -> float:
    """How many times as fast the step has become."""
    assert found.step_before_ns is not None
    assert found.step_after_ns is not None
    return found.step_before_ns / found.step_after_ns


REACHED = 0.95
"""The share of the best combination's speed that treating a workload has to reach within its budget."""


def reached(workload: gobrrr.Workload, found: Treated, ways: Sequence[str] = ()) -> float:
    """The time of the best combination of some ways over that of what was kept, all of them timed in turns.

    Without `ways`: of those of the treatments that were kept.
    """
    known = {one.name: one for one in candidates.ways_of(workload)[0]}
    mine = {known[name].treatment for name in found.kept}
    some = [known[name] for name in ways] or [one for one in known.values() if one.treatment in mine]
    combined = [
        chosen
        for size in range(1, len(some) + 1)
        for chosen in itertools.combinations(some, size)
        if len({one.treatment for one in chosen}) == size
    ]
    kept = tuple(known[name] for name in found.kept)
    arms = [Arm(workload, chosen) for chosen in dict.fromkeys((kept, *combined))]
    times = [[taken(arm) for arm in arms] for _ in range(ROUNDS)]
    medians = [statistics.median(of_arm) for of_arm in zip(*times[1:], strict=True)]
    return min(medians) / medians[0]


ROUNDS, BLOCK = 9, 10
"""Rounds, of which the first compiles and settles, and steps of an arm in each of them."""


def taken(arm: Arm) -> float:
    """Seconds of a block of steps."""
    with arm.entered() as entered:
        entered.call()
        begin = time.perf_counter()
        for _ in range(BLOCK):
            entered.call()
        return time.perf_counter() - begin


class Chain(nn.Module):
    """Pointwise operations one after another."""

    def forward(self, x: Any, scale: Any, shift: Any) -> Any:
        y = x * scale + shift
        y = torch.sigmoid(y) * y
        return torch.clamp(y * 0.5 + 0.1, -3, 3) * y + x


@pytest.mark.slow  # the compiler
@compiles
def test_an_unfused_chain_gets_faster(tmp_path: Path):
    inputs = (torch.randn(2048, 1024), torch.randn(1024), torch.randn(1024))
    found = treated(gobrrr.Workload(model=Chain(), inputs=inputs), tmp_path)
    assert found.kept == ("compile",)
    (trial,) = [one for one in found.trials if one.way == "compile"]
    assert trial.verdict == "helped"
    assert trial.numerics is not None
    assert trial.numerics.ok
    assert trial.numerics.reference == "float64"
    assert trial.recompiles_stopped
    assert trial.break_even_steps is not None
    assert faster(found) > 1.5
    assert "torch.compile" in found.code


def looped() -> gobrrr.Workload:
    """Many small layers whose optimizer goes from one parameter to the next."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(40)))
    return gobrrr.Workload(
        model=model,
        inputs=(torch.randn(8, 32),),
        loss=lambda y: y.square().mean(),
        optimizer=torch.optim.AdamW(model.parameters(), foreach=False),
    )


def test_an_optimizer_that_goes_from_parameter_to_parameter_gets_faster(tmp_path: Path):
    workload = looped()
    model = workload.model
    weights = [one.detach().clone() for one in model.parameters()]
    found = treated(workload, tmp_path, without=(*OTHERS, "compile"))
    assert found.kept[0].startswith("fused-optimizer")
    assert found.trials[0].numerics is not None
    assert found.trials[0].numerics.parameters_change
    assert faster(found) > 1.2
    # and nothing is left of it
    assert workload.optimizer.param_groups[0]["foreach"] is False
    assert not workload.optimizer.param_groups[0].get("fused")
    assert not workload.optimizer.state
    assert all(torch.equal(one, before) for one, before in zip(model.parameters(), weights, strict=True))
    assert all(one.grad is None for one in model.parameters())
    assert reached(workload, found) > REACHED


class Attention(nn.Module):
    """Causal attention with its scores written out."""

    def __init__(self, width: int = 128, heads: int = 8) -> None:
        super().__init__()
        self.heads, self.qkv = heads, nn.Linear(width, 3 * width)

    def forward(self, x: Any) -> Any:
        q, k, v = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        return (weights @ v).transpose(1, 2).flatten(2)


@pytest.mark.slow  # the compiler
@compiles
def test_written_attention_gets_faster_and_the_better_remedy_is_advised(tmp_path: Path):
    torch.manual_seed(0)
    found = treated(gobrrr.Workload(model=Attention().eval(), inputs=(torch.randn(2, 512, 128),)), tmp_path)
    assert found.kept == ("compile",)
    assert faster(found) > 1.1
    (advice,) = [one for one in found.advice if one.treatment == "sdpa"]
    assert Path(__file__).name in advice.where
    assert "scaled_dot_product_attention" in advice.code


def chain() -> gobrrr.Workload:
    return gobrrr.Workload(model=Chain(), inputs=(torch.randn(2048, 1024), torch.randn(1024), torch.randn(1024)))


def attention() -> gobrrr.Workload:
    torch.manual_seed(0)
    return gobrrr.Workload(model=Attention().eval(), inputs=(torch.randn(2, 512, 128),))


@pytest.mark.slow  # the compiler
@compiles
@pytest.mark.parametrize("make", [chain, attention, looped])
def test_a_minute_reaches_the_speed_of_the_best_combination(make: Callable[[], gobrrr.Workload], tmp_path: Path):
    workload = make()
    found = treated(workload, tmp_path)
    ways = ["compile"] if workload.optimizer is None else ["compile", "fused-optimizer", "fused-optimizer:foreach"]
    assert reached(workload, found, ways) > REACHED
    assert found.seconds < 66  # a tenth over the budget


def test_what_is_well_done_is_left_alone(tmp_path: Path):
    torch.manual_seed(0)
    model = nn.Linear(1024, 1024, bias=False).eval()
    found = treated(gobrrr.Workload(model=model, inputs=(torch.randn(512, 1024),)), tmp_path)
    assert found.kept == ()
    assert found.code == ""
    assert "2.0 %" in found.stopped
    # forced, it is tried, and refused
    forced = treated(
        gobrrr.Workload(model=model, inputs=(torch.randn(512, 1024),)), tmp_path, only=("gc-freeze",), without=()
    )
    assert [one.way for one in forced.trials] == ["gc-freeze"]
    assert forced.trials[0].verdict in ("no_change", "inconclusive", "hurt")
    assert forced.kept == ()


def test_a_way_that_breaks_the_numbers_is_flagged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    @contextmanager
    def coarse(workload: gobrrr.Workload, _: dict[str, Any]) -> Iterator[gobrrr.Workload]:
        """The weights rounded to an eighth: faster for whoever believes it."""
        weights = list(workload.model.parameters())
        before = [one.detach().clone() for one in weights]
        with torch.no_grad():
            for one in weights:
                one.copy_((one * 8).round() / 8)
        try:
            yield workload
        finally:
            with torch.no_grad():
                for one, old in zip(weights, before, strict=True):
                    one.copy_(old)

    way = TreatmentWay(name="coarse", treatment="tf32", apply=coarse, code="", numerics="rounding", rank=MODEL)
    own = [dataclasses.replace(one, ways=lambda _: iter([way])) for one in catalogue() if one.name == "tf32"]
    monkeypatch.setattr(candidates, "catalogue", lambda: tuple(own))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).eval()
    found = treated(gobrrr.Workload(model=model, inputs=(torch.randn(16, 64),)), tmp_path, only=("coarse",), without=())
    (trial,) = found.trials
    assert trial.verdict == "unsafe"
    assert trial.timing is None
    assert found.kept == ()
    assert trial.numerics is not None
    assert trial.numerics.output is not None
    assert trial.numerics.output.treated is not None
    assert trial.numerics.output.allowed is not None
    assert trial.numerics.output.treated > trial.numerics.output.allowed
