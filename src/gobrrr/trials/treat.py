"""Treats a workload: diagnoses it, searches for ways that help, and makes one record of the result."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gobrrr import units
from gobrrr.errors import UsageError
from gobrrr.model.diagnosis import Diagnosis, Trial
from gobrrr.model.treated import Treated, TrialRecord, Untried
from gobrrr.model.workload import Workload
from gobrrr.report.text import sanitise
from gobrrr.trials import doubts
from gobrrr.trials.candidates import StepOverview
from gobrrr.trials.choosing import Choice, SearchOptions, SearchState, named
from gobrrr.trials.ledger import Ledger
from gobrrr.trials.pace import Stages
from gobrrr.trials.remote import ChildRunner
from gobrrr.trials.search import NamedProgress, Search, StepRunner

MOST_SUGGESTED_WAYS = 12
"""Names that an error message lists at most."""

IN_PROCESS = (
    "the workload ran in this process: a crash or a hang in a trial would have ended it; a step that is named as "
    "file.py:name gets a process of its own"
)
"""The note for a workload that was not named."""


def treat(
    target: str | Workload | Callable[..., Any],
    options: SearchOptions,
    *,
    ledger: Path | None = None,
    limit_s: float | None = None,
    stages: Stages | None = None,
    begun: float | None = None,
) -> Treated:
    """Treat a workload: a named one ("file.py:name") in a separate process, anything else in this one.

    `begun`: the time of the request, now if None. `ledger`: its folder, None for the user's own. `limit_s`: the longest
    silence in a trial before it is ended. Raises UsageError or InputError where there is nothing to treat; exceptions
    of a step in this process pass through.
    """
    begun = time.monotonic() if begun is None else begun
    tell = NamedProgress(stages)
    options = dataclasses.replace(options, limit_s=limit_s)
    book = Ledger.open(ledger)
    if isinstance(target, str):
        remote = ChildRunner(target, budget_s=options.budget_s, limit_s=limit_s, stages=tell)
        try:
            return run(remote, target, options, book, begun=begun, tell=tell)
        finally:
            remote.close()
    from gobrrr.doors import live

    if not live.has_torch():
        raise UsageError("a live run needs torch: pip install torch")
    from gobrrr.trials.bench import LocalRunner, put_back, workload_of

    name = live.name_of(target)
    with put_back(target) as unknown:
        workload = workload_of(target, name)
        notes = (
            IN_PROCESS,
            *(unknown if workload.step is target else ()),
        )  # a callable that returned a workload ran no step
        bench = LocalRunner(workload, name, alone=False, stages=tell)
        return run(bench, name, options, book, begun=begun, notes=notes, tell=tell)


def run(
    bench: StepRunner, target: str, options: SearchOptions, ledger: Ledger, *, begun: float | None = None,
    notes: Sequence[str] = (), tell: NamedProgress | None = None, clock: Callable[[], float] = time.monotonic,
) -> Treated:  # fmt: skip
    """Search on a bench, and make the record. `begun`: the clock's time of the request."""
    begun = clock() if begun is None else begun
    spent = clock() - begun
    before = bench.look((), options.budget_s - spent, spent)
    _check_names(before, options)
    search = Search(bench, before, options, ledger, begun=begun, tell=tell, clock=clock)
    found = search.run()
    planned = search.ranked() if options.dry_run else []
    return told(found, target, planned, clock() - begun, (*notes, *ledger.notes), options.only)


def _check_names(looked: StepOverview, options: SearchOptions) -> None:
    """Refuse a name in --only or --without that is neither a way nor a treatment."""
    names = {name for candidate in looked.candidates for name in (candidate.way, candidate.treatment)}
    names |= {untried.way for untried in looked.unfit}
    for name in (*options.only, *options.without):
        if name not in names:
            raise UsageError(f"no way of a treatment is called {sanitise(name)}; those here: {_some(sorted(names))}")


def _some(names: Sequence[str]) -> str:
    """The first MOST_NAMES names, and how many more there are."""
    more = len(names) - MOST_SUGGESTED_WAYS
    return ", ".join(names[:MOST_SUGGESTED_WAYS]) + (f" and {more} more" if more > 0 else "")


def told(
    found: SearchState,
    target: str,
    planned: Sequence[Choice],
    seconds: float,
    notes: Sequence[str],
    only: Sequence[str] = (),
) -> Treated:
    """The record of a search."""
    step = found.before.step_ns
    return Treated(
        target=target,
        before=found.before.diagnosis,
        after=found.looked.diagnosis if found.kept and found.fresh_look else None,
        trials=tuple(found.trials),
        kept=tuple(candidate.way for candidate in found.kept),
        untried=_untried(found, only),
        advice=found.before.advice,
        code=code_of(found),
        order=tuple(found.order) if not planned else tuple(_plan(choice, step) for choice in planned),
        stopped=found.stopped,
        notes=(*found.before.notes, *found.notes, *notes),
        caveats=doubts.of_treatment(found),
        step_before_ns=found.measured[0] if found.measured is not None else step,
        step_after_ns=found.measured[1] if found.measured is not None else None,
        faster=found.faster,
        together=found.together,
        seconds=seconds,
        needs_s=found.needs_s,
    )


def _untried(found: SearchState, only: Sequence[str]) -> tuple[Untried, ...]:
    """The ways that were not tried: first those that the user named, then those that fit the workload."""
    unfit = {untried.way for untried in found.looked.unfit}

    def last(item: tuple[str, str]) -> tuple[bool, bool]:
        return not named(item[0], only), item[0] in unfit

    return tuple(Untried(way=way, why=why) for way, why in sorted(found.left.items(), key=last))


def _plan(choice: Choice, step: float | None) -> str:
    """One line of the plan that --dry-run shows."""
    name = choice.candidate.way
    if choice.expected is None:
        return f"{name}: nothing predicts it, last"
    share = f" ({units.percent(choice.expected / step)})" if step and choice.expected >= 0 else ""
    interval = units.duration_range(choice.low, choice.high)
    return f"{name}: predicted to save {units.duration(choice.expected)}{share}, {interval}"


def code_of(found: SearchState) -> str:
    """The code to paste for all kept ways, in the order in which they are applied; each import once, at the top."""
    imports: list[str] = []
    parts: list[str] = []
    for candidate in sorted(found.kept, key=lambda candidate: candidate.rank):
        lines = candidate.code.strip().splitlines()
        imports += [line for line in lines if line.startswith(("import ", "from "))]
        rest = "\n".join(line for line in lines if not line.startswith(("import ", "from "))).strip("\n")
        parts.append(f"# {candidate.way}\n{rest}")
    head = "\n".join(dict.fromkeys(imports))
    return "\n\n".join(filter(None, [head, *parts]))


def diagnosis_of(treated: Treated) -> Diagnosis:
    """The first diagnosis with the trials filled in, those of kept ways first, for the other renderers.

    Its notes begin with what a diagnosis has no field for: what was kept, its code, and why the search ended.
    """
    from gobrrr.report.treated import headline

    summary = [f"treated: {headline(treated)}"]
    kept = [trial for trial in treated.trials if trial.way in treated.kept]
    rest = [trial for trial in treated.trials if trial not in kept]
    if treated.code:
        summary.append(f"to paste:\n{treated.code}")
    whole = [treated.together] if treated.together is not None else []
    trials = [_trial(trial) for trial in (*whole, *kept, *rest)]
    stopped = [f"stopped: {treated.stopped}"] if treated.stopped else []
    own = [note for note in treated.notes if note not in treated.before.notes]
    caveats = list(treated.caveats)
    notes = [*summary, *treated.before.notes, *stopped, *own]
    return replace(treated.before, trials=trials, caveats=caveats, notes=notes)


def _trial(trial: TrialRecord) -> Trial:
    import msgspec

    timing = trial.timing
    return Trial(
        treatment=trial.way,
        before_ns=None if timing is None else timing.before_ns,
        after_ns=None if timing is None else timing.after_ns / trial.work,
        spread_ns=None if timing is None else timing.spread_ns,
        predicted_saving_ns=trial.predicted_saving_ns,
        numerics=msgspec.to_builtins(trial.numerics) if trial.numerics is not None else {},
        verdict=trial.verdict,
        why=trial.why if trial.verdict in ("unsafe", "inconclusive") else "",
    )
