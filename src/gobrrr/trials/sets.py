"""Sets of ways that are tried at once: the best that is predicted, those that experts use, and their parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from gobrrr.treatments.framework.together import Saving
from gobrrr.trials.candidate import LEAST_SHARE, Candidate

SEVERAL = "several at once"
"""What the treatment of a set is called."""

JOINED = " + "
"""Between the names of ways in the name of a set."""

MAY_NOT_PAY = 0.05
"""A member that is predicted to add less than this of the step that the set leaves is tried without."""

MOST_SETS = 2
"""So many sets are tried whole, the best first. Chosen, as the share above is: no measurement says which is best."""

FED = ("dataloader-workers", "prefetch-pinned")
TRAINING = (
    ("bf16-autocast", "fused-optimizer", "channels-last", *FED),
    ("bf16-autocast", "compile:reduce-overhead", "fused-optimizer", *FED),
    ("bf16-autocast", "compile", "fused-optimizer", "channels-last", *FED),
    ("tf32", "compile", "fused-optimizer", *FED),
)
SERVING = (
    ("bf16-cast", "cuda-graph"),
    ("bf16-cast", "compile:reduce-overhead"),
    ("tf32", "compile:reduce-overhead"),
)
"""What experts apply in one go, less what does not fit the workload."""

ALWAYS = frozenset({"fused-optimizer", "prefetch-pinned"})
"""What is in every set although nothing predicts it: it takes launches, passes or copies off the step, and no other
member away."""

Predict = Callable[[Sequence[str], float], Saving | None]
"""What treatments are predicted to save together, with how much work a step is then."""


def best_sets(candidates: Sequence[Candidate], predict: Predict, step_ns: float) -> list[Candidate]:
    """The sets of two and more ways that are predicted to save the most of a step, the best first.

    Each has to save as much as any single way does. One is built by adding the way that adds the most, again and again;
    the others are the experts'. What is in ALWAYS joins each of two and more. Of sets that save about the same the
    larger comes first: what does not pay is left out later, and what was never tried is not known.
    """
    fit = [one for one in candidates if _stands_in_a_set(one)]
    known = {one.way: one for one in candidates if one in fit or one.way in ALWAYS}
    found = [_with_always(_built(fit, predict, step_ns), known)]
    for recipe in (*TRAINING, *SERVING):
        found.append([known[name] for name in recipe if name in known])
    single = max((one.expected_ns or 0.0 for one in fit), default=0.0)
    made: dict[str, Candidate] = {}
    for members in found:
        if len(members) > 1 and not _at_odds(members):
            candidate = _set_of(members, predict)
            if candidate is not None and (candidate.expected_ns or 0.0) >= single:
                made.setdefault(candidate.way, candidate)
    most = max((one.expected_ns or 0.0 for one in made.values()), default=0.0)

    def rank(one: Candidate) -> tuple[bool, int, float]:
        saved = one.expected_ns or 0.0
        near = saved >= most - LEAST_SHARE * step_ns
        return not near, -len(one.members) if near else 0, -saved

    return sorted(made.values(), key=rank)[:MOST_SETS]


def halves(candidate: Candidate, candidates: Iterable[Candidate]) -> list[Candidate]:
    """The parts of a set that failed, of two and more ways: those that add the most, and the rest."""
    ranked = sorted(range(len(candidate.members)), key=lambda at: -candidate.adds[at][0])
    middle = (len(ranked) + 1) // 2
    return [
        made for half in (ranked[:middle], ranked[middle:]) if (made := part(candidate, half, candidates)) is not None
    ]


def without(candidate: Candidate, way: str, candidates: Iterable[Candidate]) -> Candidate | None:
    """A set less a way that can't be applied; None where a single one is left, which is a candidate of its own."""
    return part(candidate, [at for at, name in enumerate(candidate.members) if name != way], candidates)


def part(candidate: Candidate, places: Sequence[int], candidates: Iterable[Candidate]) -> Candidate | None:
    """Some of a set's members, predicted by what each adds to the others; None where they are fewer than two."""
    names = [candidate.members[at] for at in sorted(places)]
    known = {it.way: it for it in candidates}
    if len(names) < 2 or not set(names) <= set(known):
        return None
    adds = tuple(candidate.adds[at] for at in sorted(places))
    total = tuple(sum(ends) for ends in zip(*adds, strict=True))
    most = (candidate.expected_ns or 0.0, candidate.low_ns or 0.0, candidate.high_ns or 0.0)
    expected, low, high = (min(mine, its) for mine, its in zip(total, most, strict=True))
    return _joined([known[name] for name in names], (expected, min(low, expected), max(high, expected)), adds)


def may_not_pay(candidate: Candidate, step_ns: float) -> list[str]:
    """The members of a set that are predicted to add little, the least first; not all of them."""
    left = max(step_ns - (candidate.expected_ns or 0.0), 0.0)
    ranked = sorted(zip(candidate.members, candidate.adds, strict=True), key=lambda pair: pair[1][0])
    return [name for name, adds in ranked[:-1] if adds[0] < MAY_NOT_PAY * left]


def leaving_out(candidate: Candidate, kept: Sequence[Candidate]) -> Candidate:
    """What tries the step without a kept way."""
    return Candidate(
        way=f"without {candidate.way}",
        treatment=candidate.treatment,
        leaves_out=candidate.way,
        fresh=any(it.fresh for it in kept),
        compiles=any(it.compiles for it in kept if it.way != candidate.way),
    )


def _stands_in_a_set(candidate: Candidate) -> bool:
    """A way whose prediction counts for the same work, and that needs no minutes and no process of its own."""
    return (
        candidate.expected_ns is not None
        and candidate.work == 1.0
        and not (candidate.slow or candidate.fresh or candidate.why_not)
    )


def _at_odds(members: Sequence[Candidate]) -> bool:
    """Whether any two can't stand beside each other."""
    return any(
        first.treatment == second.treatment or {second.way, second.treatment} & set(first.conflicts)
        for first in members
        for second in members
        if first is not second
    )


def _built(fit: Sequence[Candidate], predict: Predict, step_ns: float) -> list[Candidate]:
    """Ways added one by one, each time the one that is predicted to add the most; of equals the first."""
    members: list[Candidate] = []
    saved = 0.0
    while True:
        told = [
            (found[0], one)
            for one in fit
            if not _at_odds([*members, one]) and one not in members
            and (found := predict(_names([*members, one]), 1.0)) is not None
        ]  # fmt: skip
        most, candidate = max(told, key=lambda pair: pair[0], default=(0.0, None))
        if candidate is None or most - saved < LEAST_SHARE * step_ns:
            return members
        members, saved = [*members, candidate], most


def _with_always(members: list[Candidate], known: Mapping[str, Candidate]) -> list[Candidate]:
    """A set of two and more with those of ALWAYS that can stand in it."""
    for name in sorted(ALWAYS & set(known)) if len(members) > 1 else ():
        more = [*members, known[name]]
        members = members if known[name] in members or _at_odds(more) else more
    return members


def _set_of(members: Sequence[Candidate], predict: Predict) -> Candidate | None:
    """A set with its prediction; None where it has none."""
    whole = predict(_names(members), 1.0)
    if whole is None:
        return None
    adds = []
    for member in members:
        rest = predict(_names([it for it in members if it is not member]), 1.0) or (0.0, 0.0, 0.0)
        ends = [mine - its for mine, its in zip(whole, rest, strict=True)]
        adds.append((ends[0], min(ends), max(ends)))
    return _joined(members, whole, tuple(adds))


def _joined(members: Sequence[Candidate], told: Saving, adds: tuple[Saving, ...]) -> Candidate:
    """Several ways as one candidate, in the order in which they are applied."""
    places = sorted(range(len(members)), key=lambda at: (members[at].rank, members[at].way))
    inwards = [members[at] for at in places]
    first = inwards[0]
    return replace(
        first,
        way=JOINED.join(inward.way for inward in inwards),
        treatment=SEVERAL,
        code="\n".join(inward.code for inward in inwards),
        as_if=tuple(_names(inwards)),
        conflicts=tuple(sorted({name for inward in inwards for name in inward.conflicts})),
        compiles=any(inward.compiles for inward in inwards),
        expected_ns=told[0], low_ns=told[1], high_ns=told[2],
        members=tuple(inward.way for inward in inwards),
        adds=tuple(adds[at] for at in places),
    )  # fmt: skip


def _names(members: Sequence[Candidate]) -> list[str]:
    return list(dict.fromkeys(name for member in members for name in member.as_if))
