"""What ways change in the numbers of a workload: both arms take some steps with the same state and random numbers.

The reference is a copy in float64 where the workload is a model (with a loss and an optimizer); in float32 where that
is impossible and the model has a lower precision; else a second run of the original step. A step that draws random
numbers is first compared with itself using the same numbers; where a way draws different ones, only the means of
several runs can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

import torch

from gobrrr.model.treated import Errors, Numerics
from gobrrr.model.workload import Workload
from gobrrr.observe.live.state.parts import parameters_of, parts_of
from gobrrr.observe.live.state.snapshot import Snapshot, drawn, seeded, seeds_itself, write
from gobrrr.treatments.framework.way import INPUT, TreatmentWay
from gobrrr.trials import judging
from gobrrr.trials.arms import Arm
from gobrrr.trials.judging import Judged
from gobrrr.trials.observed import Observed, StepObserver
from gobrrr.trials.quantities import ComparedRuns, judged
from gobrrr.trials.reference import lower_than_float32, possible, reference, release
from gobrrr.trials.rounding import roundoff_of

NUMERICS_SEED, OTHER_SEED, AVERAGED_RUNS = 20_240_501, 77_001, 4
"""The seed of all runs, the first of the other seeds, and the runs of each arm whose means are compared. Chosen."""
MOST_OWN_ERROR = 0.1
"""An original step whose own error is a larger share of its size can't be compared with anything. Chosen."""
MOST_REFERENCE_ERROR = 1e-2
"""A reference that differs more from a float32 step computes something else. Chosen, not measured."""
FEW_NAMES = 3
"""Parameter names that a message lists at most."""
NOTABLE = 1e-3
"""A larger error that is allowed is explained. Chosen, not measured."""

STATE_NOT_RESTORED = (
    "the step keeps state that gobrrr does not put back, or draws its own random numbers; give Workload(reset=...) to "
    "put it back"
)
SEEDED_BY_STEP = "the step sets its own seed, and this way draws other random numbers from it: try it without that seed"

Kind = Literal["float64", "float32", "baseline", "none"]


def compare(
    workload: Workload,
    before: Arm,
    after: Arm,
    way: TreatmentWay,
    snapshot: Snapshot,
    *,
    steps: int = 3,
    few: bool = False,
    most_s: float = math.inf,
) -> Numerics:
    """Compare both arms over some steps. Exceptions of the arms pass through; the workload stays as they leave it.

    `few`: use as few runs as possible, and no reference in float64, which may otherwise take `most_s` seconds.
    """  # fmt: skip
    return _Comparison(workload, before, after, way, snapshot, steps, few, most_s).result()


class _Comparison:
    def __init__(
        self, workload: Workload, before: Arm, after: Arm, way: TreatmentWay, snapshot: Snapshot, steps: int, few: bool,
        most_s: float,
    ) -> None:  # fmt: skip
        self._workload, self._before, self._after, self._way = workload, before, after, way
        self._snapshot, self._steps, self._few, self._most_s = snapshot, steps, few, most_s
        self._terms = 1
        self._like: Observed | None = None  # the original step's values, where it works on one batch
        self._generators = parts_of(workload).generators
        self._draws = False  # whether the last run drew a random number
        self._roundoffs = {False: 0.0, True: 0.0}
        self._exact = way.numerics == "none"

    def result(self) -> Numerics:
        """Compare, and make the record."""
        baseline = self._run(self._before)
        self._like = baseline if _times(self._before) == 1 else None
        draws = self._draws
        random = draws and self._random(baseline)
        treated = self._run(self._after)
        other = self._way.numerics == "statistics"
        if other and (random or _trains(baseline)):
            return self._statistics_only(baseline, treated)
        kind, truth = ("baseline", None) if random else self._reference(baseline)
        if truth is None:
            truth = self._run(self._before)
        if other:
            return self._fewer_bits(kind, baseline, treated, truth)
        self._terms = _largest(self._workload, baseline, parameters=kind == "baseline")
        own = self._own_noise(baseline, truth) if kind == "baseline" else 0.0
        if own > MOST_OWN_ERROR:
            why = f"two runs of the step as it is differ by {own:.2g} of their size, from the same state"
            return self._record("none", None, f"{why}: {STATE_NOT_RESTORED}")
        self._exact = self._exact and own == 0.0  # a step that is not reproducible may round differently
        rounds = self._way.numerics == "rounding"
        asked = rounds or kind == "baseline"
        response = self._response(rounds) if asked and not self._few else None
        found = self._judged(treated, baseline, truth, response)
        if asked and self._few and any(part.wrong for part in found.values()):
            response = self._response(rounds)
            found = self._judged(treated, baseline, truth, response)
        if self._exact and kind != "baseline" and any(part.wrong for part in found.values()):
            self._exact = self._own_noise(baseline, self._run(self._before)) == 0.0
            found = self._judged(treated, baseline, truth, response)
        if draws and any(part.wrong for part in found.values()) and self._draws_otherwise(treated, baseline, response):
            if random:
                return self._means()
            if seeds_itself(lambda seed: self._run(self._before, seed=seed)):
                return self._record("none", None, SEEDED_BY_STEP)
        return self._said(kind, found, treated, baseline)

    # -- runs

    def _run(self, arm: Arm, *, seed: int = NUMERICS_SEED, nudge: float = 0.0) -> Observed:
        """Run some steps of an arm from the snapshot."""
        self._snapshot.restore()
        seeded(seed)
        watch = StepObserver(self._workload, _times(arm), self._like)
        if nudge:
            _nudge(self._workload, nudge)
        asks = drawn(self._generators)
        with arm.entered(fresh=True, seen=watch.seen) as entered:
            found = watch.run(entered.call, entered.workload, self._steps)
            treated = arm is self._after
            self._roundoffs[treated] = max(
                self._roundoffs[treated], found.roundoff, roundoff_of(entered.layers, arm.ways)
            )
        self._draws = asks()
        return found

    def _random(self, baseline: Observed) -> bool:
        """Whether different random numbers change the result."""
        other = self._run(self._before, seed=OTHER_SEED)
        return self._own_noise(baseline, other) > judging.ROUNDOFFS * self._roundoffs[False]

    def _own_noise(self, observed: Observed, other: Observed) -> float:
        """The largest difference between two runs of the original step."""
        found = self._judged(observed, observed, other, None)
        errors = [part.errors.treated for part in found.values() if part.errors is not None]
        return max((error for error in errors if error is not None), default=0.0)

    def _reference(self, baseline: Observed) -> tuple[Kind, Observed | None]:
        if self._few or not possible(self._workload):
            return "baseline", None
        kinds: list[tuple[Kind, Any]] = [("float64", torch.float64)]
        if lower_than_float32(self._workload):
            kinds.append(("float32", torch.float32))
        for kind, dtype in kinds:
            truth = self._in(dtype)
            if truth is not None and self._plausible(baseline, truth):
                return kind, truth
        return "baseline", None

    def _in(self, dtype: Any) -> Observed | None:
        """Run some steps of a copy in `dtype`; None where memory is short, or the model can't be copied or run in
        it."""
        self._snapshot.restore()
        seeded(NUMERICS_SEED)
        watch = StepObserver(self._workload)
        try:
            with reference(self._workload, dtype, watch.seen, self._most_s) as (call, twin):
                return watch.run(call, twin, self._steps)
        except Exception:  # the copy runs the user's code, which may raise anything
            release()
            return None

    def _plausible(self, baseline: Observed, truth: Observed) -> bool:
        """Whether the reference computes the same thing: it is close to the original step."""
        found = self._judged(baseline, baseline, truth, None)
        limit = max(MOST_REFERENCE_ERROR, 64 * self._roundoffs[False])
        parts = [found.get(name) for name in ("output", "loss", "gradients")]
        errors = [part.errors for part in parts if part is not None and part.errors is not None]
        return bool(errors) and all((error.treated or 0.0) <= limit for error in errors)

    def _response(self, rounds: bool) -> Observed:
        """The original step with its parameters off by one rounding of the lowest precision in use: the effect of
        rounding.

        A step that is compared with itself has no other measure of its own error.
        """
        lowest = max(self._roundoffs.values()) if rounds else self._roundoffs[False]
        return self._run(self._before, nudge=lowest or 2.0**-24)

    # -- judging

    def _draws_otherwise(self, treated: Observed, baseline: Observed, response: Observed | None) -> bool:
        """Whether the first step differs already: if not, the same random numbers were drawn, and a difference is an
        error."""
        if (
            self._way.numerics == "none" and self._way.rank < INPUT
        ):  # prefetching and workers draw random numbers in another order
            return False
        held = [None if observed is None else _first_step(observed) for observed in (treated, baseline, response)]
        assert held[0] is not None
        assert held[1] is not None
        found = self._judged(held[0], held[1], held[1], held[2])
        return any(part.wrong for part in found.values())

    def _judged(
        self, treated: Observed, baseline: Observed, truth: Observed, response: Observed | None
    ) -> dict[str, Judged]:
        roundoff = self._roundoffs[False] if self._exact else max(self._roundoffs.values())
        lower = roundoff > self._roundoffs[False]
        return judged(ComparedRuns(treated, baseline, truth, response, roundoff, self._exact, lower, self._terms))

    def _said(self, kind: Kind, found: dict[str, Judged], treated: Observed, baseline: Observed) -> Numerics:
        frozen = _frozen(treated, baseline)
        wrong = [frozen] if frozen else [part.wrong for part in found.values() if part.wrong]
        unknown = [part.unknown for part in found.values() if part.unknown]
        shape = _other_shape(treated, baseline)
        if shape:
            wrong.insert(0, shape)
        errors = {name: part.errors for name, part in found.items()}
        vague = [
            name
            for name, error in errors.items()
            if error is not None and (error.allowed or 0.0) > judging.MOST_ALLOWED_ERROR
        ]
        errors |= dict.fromkeys(vague)
        nothing = errors["output"] is None and errors.get("loss") is None
        if nothing:
            errors["output"] = errors["change"]
        changed = _changed(treated, baseline)
        if wrong:
            return self._record(kind, False, "; ".join(wrong[:2]), errors, changed)
        if unknown:
            return self._record(kind, None, unknown[0], errors, changed)
        if vague and all(error is None for error in errors.values()):
            return self._record(
                kind, None, f"any rounding changes {_listed(vague)} by half of its size", errors, changed
            )
        if all(error is None for error in errors.values()):
            why = "the step returns nothing and changes nothing that is known: there is nothing to compare"
            return self._record("none", None, why, errors, changed)
        unjudged = [name for name in vague if name != "change"]
        words = [f"{_listed(unjudged)} can't be judged: any rounding changes half of the size"] if unjudged else []
        lower = self._roundoffs[True] > self._roundoffs[False]  # a lower precision is the way's purpose
        words += [why] if (why := "" if lower else _why_allowed(kind, errors)) else []
        words += ["its steps are slow: few runs were compared, and none in float64"] if self._few else []
        return self._record(kind, True, "; ".join(words), errors, changed)

    def _means(self) -> Numerics:
        """Compare the means of runs with several seeds: arms that draw different random numbers agree only on
        average."""
        self._steps = 1 if self._few else self._steps
        runs: dict[bool, list[Observed]] = {False: [], True: []}
        for seed in range(OTHER_SEED, OTHER_SEED + AVERAGED_RUNS):
            for treated, arm in ((False, self._before), (True, self._after)):
                runs[treated].append(self._run(arm, seed=seed))
        own, others = (_scalars(runs[side]) for side in (True, False))
        roundoff = max(self._roundoffs.values())
        wrong = [
            f"{name} is {why}"
            for name in others
            if name in own and (why := judging.means_differ(own[name], others[name], roundoff))
        ]
        frozen = _frozen(runs[True][0], runs[False][0])
        changed = _changed(runs[True][0], runs[False][0])
        if frozen or wrong:
            return self._record("baseline", False, frozen or wrong[0], None, changed)
        if not set(own) & set(others):
            return self._record("none", None, "it draws other random numbers, and returns nothing to average", {})
        why = f"it draws other random numbers: only means over {AVERAGED_RUNS} runs were compared"
        return self._record("baseline", True, why, None, changed)

    def _statistics_only(self, baseline: Observed, treated: Observed) -> Numerics:
        frozen, changed = _frozen(treated, baseline), _changed(treated, baseline)
        finite = [
            bool(torch.isfinite(torch.cat(observed.losses[""])).all())
            for observed in (treated, baseline)
            if observed.losses
        ]
        if frozen or (len(finite) == 2 and finite[1] and not finite[0]):
            return self._record("none", False, frozen or "the loss is no longer finite", None, changed)
        why = "it changes the statistics of the training: only that the loss is finite and that the parameters change"
        if not _trains(baseline):
            why = "it computes in fewer bits a step that draws random numbers: only that what it returns is finite"
            values = [step for held in (treated.returned, treated.outputs) for steps in held.values() for step in steps]
            if not all(bool(torch.isfinite(value).all()) for value in values):
                return self._record("none", False, "what it returns is no longer finite", None, changed)
        return self._record("none", True, f"{why} was looked at", None, changed)

    def _fewer_bits(self, kind: Kind, baseline: Observed, treated: Observed, truth: Observed) -> Numerics:
        """Judge a way that computes in fewer bits: report the error, and call more than ILL wrong."""
        found = self._judged(treated, baseline, truth, None)
        errors = {name: part.errors for name, part in found.items()}
        wrong, output = _other_shape(treated, baseline), errors.get("output")
        if output is None:
            return self._record("none", None, "it computes in fewer bits, and there is nothing to compare", errors)
        if not wrong and output.treated is None:
            wrong = "the output: no longer finite"
        elif not wrong and output.treated is not None and output.treated > MOST_OWN_ERROR:
            wrong = f"the output off by {output.treated:.2g} of its size, which is more than fewer bits explain"
        if wrong:
            return self._record(kind, False, wrong, errors)
        own = f", the step as it is by {output.baseline:.1g}" if output.baseline else ""
        why = f"it computes in fewer bits: the output is off by {output.treated:.1g}{own}"
        return self._record(kind, True, why, errors)

    def _record(
        self,
        kind: Kind,
        ok: bool | None,
        why: str,
        errors: dict[str, Errors | None] | None = None,
        changed: bool | None = None,
    ) -> Numerics:
        held = errors or {}
        return Numerics(
            reference=kind,
            ok=ok,
            why=why,
            steps=self._steps,
            output=held.get("output"),
            loss=held.get("loss"),
            gradients=held.get("gradients"),
            parameters_change=changed,
        )


def _why_allowed(kind: Kind, errors: dict[str, Errors | None]) -> str:
    """Why an error over NOTABLE is allowed; "" for smaller ones."""
    large = {
        name: error for name, error in errors.items() if name != "change" and error and (error.treated or 0) > NOTABLE
    }
    if not large:
        return ""
    name = max(large, key=lambda quantity: large[quantity].treated or 0.0)
    worst = large[name]
    assert worst is not None
    off, own = worst.treated or 0.0, worst.baseline or 0.0
    if own * judging.ALLOWED_ERROR_FACTOR_FEW < off:
        return f"{_listed([name])} off by {off:.1g}: no more than rounding changes it by"
    if kind == "baseline":
        return f"two runs of the step as it is differ by {own:.1g} by themselves in {_listed([name])}"
    return f"the step as it is off by {own:.1g} itself from {kind} in {_listed([name])}"


def _largest(workload: Workload, baseline: Observed, *, parameters: bool) -> int:
    """The size of the largest known tensor that the step may sum, of `parameters` too if asked: it is not known what a
    user's own step sums."""
    parts = parts_of(workload)
    held = [
        *parts.tensors,
        *(output[0] for output in baseline.outputs.values()),
        *(steps[0] for steps in baseline.returned.values()),
    ]
    if parameters:
        held += [parameter for module in parts.modules for parameter in module.parameters()]
    return max((tensor.numel() for tensor in held), default=1)


def _first_step(observed: Observed) -> Observed:
    """The values of the first step, without those that are only known at the end."""

    def first(held: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return {name: values[:1] for name, values in held.items()}

    return Observed(outputs=first(observed.outputs), returned=first(observed.returned), losses=first(observed.losses))


def _frozen(treated: Observed, baseline: Observed) -> str:
    """Names the parameters and buffers that the original step changes and the treated one does not; "" for none."""
    names = [name for name, moved in baseline.changed.items() if moved and treated.changed.get(name) is False]
    if not names:
        return ""
    more = f" and {len(names) - FEW_NAMES} more" if len(names) > FEW_NAMES else ""
    return f"the step no longer changes {', '.join(names[:FEW_NAMES])}{more}"


def _changed(treated: Observed, baseline: Observed) -> bool | None:
    names = [name for name, moved in baseline.changed.items() if moved and name in treated.changed]
    return all(treated.changed[name] for name in names) if names else None


def _times(arm: Arm) -> int:
    """How many of the workload's batches one step of an arm processes."""
    return round(math.prod(way.work for way in arm.ways))


def _trains(found: Observed) -> bool:
    """Whether a step updates parameters, or computes their gradients."""
    return bool(found.gradients or any(found.changed.values()))


def _other_shape(treated: Observed, baseline: Observed) -> str:
    for name, shape in baseline.shapes.items():
        other = treated.shapes.get(name, shape)
        if other != shape:
            return f"the output{name} has the shape {other}, not {shape}"
    return ""


def _scalars(runs: Sequence[Observed]) -> dict[str, list[float]]:
    """Numbers that summarise each run: the losses, and the size and mean of each output."""
    found: dict[str, list[float]] = {}
    for run in runs:
        for number, loss in enumerate(run.losses.get("", ())):
            found.setdefault(f"the loss of step {number + 1}", []).append(float(loss[0]))
        for label, held in (("the output", run.returned), ("the model's output", run.outputs)):
            for name, values in held.items():
                first = values[0].double()
                found.setdefault(f"the mean of {label}{name}", []).append(float(first.mean()))
                size = float(first.norm()) / math.sqrt(max(1, first.numel()))
                found.setdefault(f"the size of {label}{name}", []).append(size)
    return found


def _nudge(workload: Workload, relative: float) -> None:
    """Moves parameters by one rounding, randomly up or down: of their own type where that is coarser."""
    for number, tensor in enumerate(parameters_of(workload).values()):
        if not tensor.is_floating_point():
            continue
        generator = torch.Generator(device=tensor.device)
        generator.manual_seed(NUMERICS_SEED + number)
        signs = torch.randint(0, 2, tensor.shape, generator=generator, device=tensor.device) * 2 - 1
        off = max(relative, float(torch.finfo(tensor.dtype).eps))
        with suppress(RuntimeError, NotImplementedError):
            write(tensor, (tensor.detach().float() * (1 + off * signs)).to(tensor.dtype))


def _listed(names: Sequence[str]) -> str:
    words = {"output": "the output", "loss": "the loss", "gradients": "the gradients", "change": "the weights' change"}
    return " and ".join(words.get(name, name) for name in names)
