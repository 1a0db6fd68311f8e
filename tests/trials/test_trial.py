"""A trial of ways that do one thing each: what it says of them, and that nothing of the workload is changed."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from gobrrr.errors import UsageError  # noqa: E402
from gobrrr.model.workload import Workload  # noqa: E402
from gobrrr.observe.targets import step_of  # noqa: E402
from gobrrr.treatments.framework.way import NotApplicable  # noqa: E402
from gobrrr.trials.pace import TrialTime  # noqa: E402
from gobrrr.trials.trial import run_trial  # noqa: E402
from tests.trials import fakes  # noqa: E402
from tests.trials.fakes import SLEEP, one_thread, way  # noqa: E402, F401

pytestmark = pytest.mark.torch

SECONDS = 3.0


def tried(workload: Workload, apply: Any, kept: Any = (), **options: Any) -> Any:
    before = fakes.state_of(workload) if workload.model is not None else []
    found = run_trial(workload, kept, way(apply, **options), allowed=TrialTime(seconds=SECONDS), clock=fakes.Clock.ns)
    if workload.model is not None:
        assert fakes.same(before, fakes.state_of(workload))
    return found


@pytest.mark.parametrize("make", [fakes.training, fakes.closure])
def test_a_step_that_waits_less_is_helped(make: Any) -> None:
    found = tried(make(), fakes.naps(SLEEP / 4), numerics="none")
    assert found.verdict == "helped", found
    assert found.numerics.ok
    assert found.numerics.parameters_change
    assert found.numerics.reference == ("float64" if make is fakes.training else "baseline")
    assert found.timing.before_ns - found.timing.after_ns > found.timing.spread_ns
    assert found.memory_before_bytes is None
    assert found.recompiles_stopped


def test_a_step_that_waits_longer_is_hurt() -> None:
    assert tried(fakes.training(), fakes.naps(2 * SLEEP)).verdict == "hurt"


def test_what_changes_nothing_is_no_change() -> None:
    found = tried(fakes.training(), fakes.naps(SLEEP), numerics="none")
    assert found.verdict == "no_change", found


def test_in_the_place_of_a_kept_way_it_is_measured_against_that_one() -> None:
    """Half of the nap of the kept way, not of the step without it; what is kept beside it is in both."""
    seen: list[str] = []

    def beside(workload: Workload, kept: dict[str, Any]) -> Any:
        seen.append("beside")
        yield workload

    rival, other = way(fakes.naps(SLEEP / 2), name="rival"), way(beside, name="other")
    made = fakes.training()
    before = fakes.state_of(made)
    found = run_trial(
        made, [rival, other], way(fakes.naps(SLEEP / 4), numerics="none"), instead_of=rival,
        allowed=TrialTime(seconds=SECONDS), clock=fakes.Clock.ns,
    )  # fmt: skip
    assert fakes.same(before, fakes.state_of(made))
    assert (found.verdict, found.kept, found.instead_of) == ("helped", ("rival", "other"), "rival")
    assert found.timing.after_ns == pytest.approx(found.timing.before_ns / 2, rel=0.01)
    assert seen


@pytest.mark.parametrize("make", [fakes.training, fakes.closure, lambda: fakes.closure(returns=False)])
@pytest.mark.parametrize("numerics", ["none", "rounding"])
def test_rounded_weights_are_unsafe(make: Any, numerics: str) -> None:
    found = tried(make(), fakes.rounds(4), numerics=numerics)
    assert (found.verdict, found.timing) == ("unsafe", None), found
    assert "allowed" in found.why


@pytest.mark.parametrize("make", [fakes.training, fakes.closure, lambda: fakes.closure(returns=False)])
@pytest.mark.parametrize("numerics", ["none", "rounding", "statistics"])
def test_parameters_that_no_longer_change_are_unsafe(make: Any, numerics: str) -> None:
    found = tried(make(), fakes.freezes, numerics=numerics)
    assert found.verdict == "unsafe"
    assert "no longer changes 0.inner.weight" in found.why
    assert found.numerics.parameters_change is False


def test_a_graph_that_never_reads_its_inputs_again_is_unsafe() -> None:
    made = fakes.training(loss=None, optimizer=None, targets=())
    assert tried(made, fakes.stale, numerics="none").verdict == "unsafe"


def test_outputs_in_the_same_memory_are_copied_before_the_next_step() -> None:
    made = fakes.training(loss=None, optimizer=None, targets=())
    found = tried(made, fakes.reuses, numerics="none")
    assert found.numerics.ok
    assert found.numerics.output.treated == found.numerics.output.baseline


FOUND = """RuntimeError when making fake tensor call
  Explanation: Dynamo failed to run FX node with fake tensors: call_function mul(*(FakeTensor(..., size=(128,)),), \
**{}): got RuntimeError("can't broadcast 64 to [128]")
  Hint: Your code may result in an error when running in eager."""
FOUND_BEFORE = """Failed running call_function mul(*(FakeTensor(..., size=(128,)),), **{}):
can't broadcast 64 to [128]

from user code:"""
"""What torch's compiler says of an error of the program: since torch 2.8, and before."""


@pytest.mark.parametrize("where", ["step", "enter"])
@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ValueError("no\nway"), "fake failed: ValueError: no"),
        (MemoryError("all of it"), "out of memory with fake: MemoryError: all of it"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried"), "out of memory with fake"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "out of memory with fake"),
        (NotApplicable("it has no fused form"), "fake can't be applied: it has no fused form"),
        (RuntimeError(FOUND), "fake failed: RuntimeError: can't broadcast 64 to [128]"),
        (RuntimeError(FOUND_BEFORE), "fake failed: RuntimeError: can't broadcast 64 to [128]"),
    ],
)
def test_what_a_way_raises_ends_the_trial_in_one_line(where: str, error: Exception, says: str) -> None:
    found = tried(fakes.training(), fakes.raises(error, where=where))
    assert found.verdict == "inconclusive"
    assert found.why.startswith(says)
    assert "\n" not in found.why


def test_a_way_that_can_not_be_taken_back_says_that_the_workload_may_be_changed() -> None:
    found = tried(fakes.training(), fakes.raises(ValueError("stuck"), where="leave"))
    assert found.verdict == "inconclusive"
    assert found.why == "fake could not be undone: ValueError: stuck; the workload may be changed"


def test_an_interrupt_passes_and_the_workload_is_as_it_was() -> None:
    made = fakes.training()
    before = fakes.state_of(made)
    with pytest.raises(KeyboardInterrupt):
        run_trial(made, (), way(fakes.raises(KeyboardInterrupt())), allowed=TrialTime(seconds=SECONDS))
    assert fakes.same(before, fakes.state_of(made))


def test_a_workload_that_fails_itself_is_no_matter_of_the_way() -> None:
    def step() -> None:
        raise ValueError("mine")

    found = tried(Workload(step=step), fakes.naps(0))
    assert (found.verdict, found.why) == ("inconclusive", "the step as it is fails: ValueError: mine")


@pytest.mark.parametrize("wrong", [{}, {"model": nn.Linear(1, 1), "inputs": 3}, {"step": print, "loader": iter([])}])
def test_a_workload_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="Workload"):
        run_trial(Workload(**wrong), (), way(fakes.naps(0)), allowed=TrialTime(seconds=SECONDS))


def test_what_compiles_again_and_again_is_inconclusive() -> None:
    found = tried(fakes.training(), fakes.compiles(every=7), compiles=True)
    assert found.verdict == "inconclusive"
    assert found.recompiles_stopped is False
    assert "compilations" in found.why


def test_compile_time_is_broken_even_by_what_is_saved() -> None:
    def apply(workload: Any, kept: Any) -> Any:
        for one in fakes.compiles(every=10**9)(workload, kept):
            yield from fakes.naps(SLEEP / 4)(one, kept)

    found = tried(fakes.training(), apply, compiles=True)
    assert found.verdict == "helped", found
    assert found.compile_s == pytest.approx(0.08)
    saving = found.timing.before_ns - found.timing.after_ns
    assert found.break_even_steps == pytest.approx(found.compile_s * 1e9 / saving)


def test_work_is_what_time_is_taken_per() -> None:
    found = tried(fakes.training(), fakes.naps(1.5 * SLEEP), work=2.0, numerics="statistics")
    assert found.verdict == "helped", found
    assert found.timing.after_ns > found.timing.before_ns
    assert "statistics" in found.why


def test_a_step_of_which_nothing_is_known_says_so() -> None:
    made = Workload(step=lambda: torch.ones(300).sum())
    found = run_trial(
        made, (), way(lambda workload, kept: iter([workload]), numerics="none"), allowed=TrialTime(seconds=0.4)
    )
    assert found.verdict != "unsafe"
    assert found.timing.before_ns > 0
    assert "the step's state is not known" in found.notes[0]


def test_kept_ways_are_in_both_arms() -> None:
    kept = way(fakes.naps(SLEEP / 2), "kept")
    found = tried(fakes.training(), fakes.naps(SLEEP / 2), (kept,), numerics="none")
    assert found.verdict == "no_change", found
    assert found.kept == ("kept",)
    assert found.timing.before_ns == pytest.approx(SLEEP / 2 * 1e9)


def test_progress_is_told() -> None:
    told: list[Any] = []
    run_trial(
        fakes.training(),
        (),
        way(fakes.naps(0)),
        allowed=TrialTime(seconds=0.2),
        progress=lambda *one: told.append(one),
        clock=fakes.Clock.ns,
    )
    assert told[0] == ("fake: applying", 0, 4)
    assert all(done <= total for _, done, total in told)


def test_what_a_step_keeps_in_lists_and_attributes_is_put_back_and_what_only_goes_on_is_noted() -> None:
    made, history, batches = fakes.training(), [], iter(range(10**6))
    call, arguments = step_of(made, lambda model, *x: model(*x))
    made.model.calls = 1

    def step() -> Any:
        made.model.calls += 1
        next(batches)
        history.append(made.model.calls)
        return call(*arguments)

    kept = Workload(model=made.model, step=step, optimizer=made.optimizer)
    found = tried(kept, fakes.naps(SLEEP / 4))
    assert found.verdict == "helped", found
    assert made.model.calls == 1
    assert not history
    assert any("the step takes items from batches" in one for one in found.notes)
