"""A workload treated: diagnosed, searched, and told as one record."""

from __future__ import annotations

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
from gobrrr.treating.candidates import Looked
from gobrrr.treating.ledger import Ledger
from gobrrr.treating.remote import Remote
from gobrrr.treating.search import Bench, Choice, Found, Options, Search, Stages, Telling

IN_PROCESS = (
    "the workload ran in this process: a crash or a hang in a trial would have ended it; file.py:name gets its own"
)


def treat(
    target: str | Workload | Callable[..., Any],
    options: Options,
    *,
    ledger: Path | None = None,
    limit_s: float | None = None,
    stages: Stages | None = None,
) -> Treated:
    """Treat a workload: a name ("file.py:name") in a process of its own, anything else in this one.

    `ledger`: its folder, None for the user's own. `limit_s`: the longest silence in a trial before it is ended. Raises
    UsageError or InputError where there is nothing to treat; what a step in this process raises passes through.
    """
    begun = time.monotonic()
    tell = Telling(stages)
    book = Ledger.open(ledger)
    if isinstance(target, str):
        remote = Remote(target, limit_s=limit_s, stages=tell)
        try:
            return run(remote, target, options, book, begun=begun, tell=tell)
        finally:
            remote.close()
    from gobrrr import live

    if not live.has_torch():
        raise UsageError("a live run needs torch: pip install torch")
    from gobrrr.treating.bench import Here, workload_of

    name = live.name_of(target)
    here = Here(workload_of(target, name), name, alone=False, stages=tell)
    return run(here, name, options, book, begun=begun, notes=(IN_PROCESS,), tell=tell)


def run(
    bench: Bench, target: str, options: Options, ledger: Ledger, *, begun: float | None = None,
    notes: Sequence[str] = (), tell: Telling | None = None,
) -> Treated:  # fmt: skip
    """Search on a bench, and tell what was found."""
    begun = time.monotonic() if begun is None else begun
    before = bench.look(())
    _check_names(before, options)
    search = Search(bench, before, options, ledger, begun=begun, tell=tell)
    found = search.run()
    planned = search.ranked() if options.dry_run else []
    return told(found, target, planned, time.monotonic() - begun, (*notes, *ledger.notes))


def _check_names(looked: Looked, options: Options) -> None:
    """Refuse a name in --only or --without that is no way and no treatment."""
    known = {name for one in looked.candidates for name in (one.way, one.treatment)}
    known |= {one.way for one in looked.unfit}
    for name in (*options.only, *options.without):
        if name not in known:
            raise UsageError(f"no way of a treatment is called {name}; those here: {', '.join(sorted(known))}")


def told(found: Found, target: str, planned: Sequence[Choice], seconds: float, notes: Sequence[str]) -> Treated:
    """The record of a search."""
    step = found.before.step_ns
    return Treated(
        target=target,
        before=found.before.diagnosis,
        after=found.looked.diagnosis if found.kept and found.fresh_look else None,
        trials=tuple(found.trials),
        kept=tuple(one.way for one in found.kept),
        untried=_untried(found),
        advice=found.before.advice,
        code=code_of(found),
        order=tuple(found.order) if not planned else tuple(_plan(one, step) for one in planned),
        stopped=found.stopped,
        notes=(*found.before.notes, *found.notes, *notes),
        step_before_ns=step,
        step_after_ns=step * found.factor if step is not None and found.kept else None,
        together=found.together,
        seconds=seconds,
    )


def _untried(found: Found) -> tuple[Untried, ...]:
    """What was left, that which fits the workload first."""
    unfit = {one.way for one in found.looked.unfit}
    return tuple(Untried(way=way, why=why) for way, why in sorted(found.left.items(), key=lambda it: it[0] in unfit))


def _plan(choice: Choice, step: float | None) -> str:
    """One line of what would be tried."""
    name = choice.candidate.way
    if choice.expected is None:
        return f"{name}: nothing predicts it, last"
    share = f" ({units.percent(choice.expected / step)})" if step and choice.expected >= 0 else ""
    interval = units.duration_range(choice.low, choice.high)
    return f"{name}: predicted to save {units.duration(choice.expected)}{share}, {interval}"


def code_of(found: Found) -> str:
    """What to paste for all that was kept, in the order in which it is applied; each import once, at the top."""
    imports: list[str] = []
    parts: list[str] = []
    for one in sorted(found.kept, key=lambda it: it.rank):
        lines = one.code.strip().splitlines()
        imports += [line for line in lines if line.startswith(("import ", "from "))]
        rest = "\n".join(line for line in lines if not line.startswith(("import ", "from "))).strip("\n")
        parts.append(f"# {one.way}\n{rest}")
    head = "\n".join(dict.fromkeys(imports))
    return "\n\n".join(filter(None, [head, *parts]))


def diagnosis_of(treated: Treated) -> Diagnosis:
    """The diagnosis before, with its trials filled in: what the other renderers show. What has no time is a note."""
    timed = [one for one in treated.trials if one.timing is not None and one.predicted_saving_ns is not None]
    others = [f"tried: {one.way}: {one.verdict.replace('_', ' ')}: {one.why}"
              for one in treated.trials if one not in timed]  # fmt: skip
    trials = [made for one in timed if (made := _trial(one)) is not None]
    return replace(treated.before, trials=trials, notes=[*treated.before.notes, *others])


def _trial(one: TrialRecord) -> Trial | None:
    import msgspec

    if one.timing is None or one.predicted_saving_ns is None:
        return None
    numerics = msgspec.to_builtins(one.numerics) if one.numerics is not None else {}
    return Trial(
        treatment=one.way,
        before_ns=one.timing.before_ns,
        after_ns=one.timing.after_ns / one.work,
        spread_ns=one.timing.spread_ns,
        predicted_saving_ns=one.predicted_saving_ns,
        numerics=numerics,
        verdict=one.verdict,
    )
