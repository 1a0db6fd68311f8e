"""Sets of ways that are tried at once: the best predicted ones, those that experts use, and their parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from gobrrr.treatments.framework.together import Saving
from gobrrr.trials.candidate import LEAST_SAVING_SHARE, Candidate

SEVERAL = "several at once"
"""The name of a set's treatment."""

JOINED = " + "
"""Separates the names of ways in the name of a set."""

MAY_NOT_PAY = 0.05
"""The step is tried without a member that is predicted to add less than this share of the step that the set leaves.
Chosen, not measured."""

MOST_SETS = 2
"""Sets that are tried whole, the best first. Chosen, not measured."""

INPUT_WAYS = ("dataloader-workers", "prefetch-pinned")
"""Ways that feed the step with input."""
TRAINING = (
    ("bf16-autocast", "fused-optimizer", "channels-last", *INPUT_WAYS),
    ("bf16-autocast", "compile:reduce-overhead", "fused-optimizer", *INPUT_WAYS),
    ("bf16-autocast", "compile", "fused-optimizer", "channels-last", *INPUT_WAYS),
    ("tf32", "compile", "fused-optimizer", *INPUT_WAYS),
)
SERVING = (
    ("bf16-cast", "cuda-graph"),
    ("bf16-cast", "compile:reduce-overhead"),
    ("tf32", "compile:reduce-overhead"),
)
"""Sets that experts apply in training and in serving; ways that do not fit the workload are left out."""

ALWAYS_IN_SETS = frozenset({"fused-optimizer", "prefetch-pinned"})
"""Ways that join every set even without a prediction: they remove launches, passes or copies, and conflict with no
other way."""

Predict = Callable[[Sequence[str], float], Saving | None]
"""The predicted saving of treatments together, by their names and the work of a step."""


def best_sets(candidates: Sequence[Candidate], predict: Predict, step_ns: float) -> list[Candidate]:
    """The sets of two or more ways with the largest predicted savings, the best first.

    Each has to save at least as much as any single way. One set is built greedily, by adding the way that adds the
    most; the others are those of experts. The ways in ALWAYS join every set. Of sets with about the same saving the
    larger comes first, because ways that do not pay are left out later.
    """
    fit = [candidate for candidate in candidates if _stands_in_a_set(candidate)]
    by_way = {
        candidate.way: candidate for candidate in candidates if candidate in fit or candidate.way in ALWAYS_IN_SETS
    }
    found = [_with_always(_built(fit, predict, step_ns), by_way)]
    for recipe in (*TRAINING, *SERVING):
        found.append([by_way[name] for name in recipe if name in by_way])
    single = max((candidate.expected_ns or 0.0 for candidate in fit), default=0.0)
    candidates_by_way: dict[str, Candidate] = {}
    for members in found:
        if len(members) > 1 and not _at_odds(members):
            candidate = _set_of(members, predict)
            if candidate is not None and (candidate.expected_ns or 0.0) >= single:
                candidates_by_way.setdefault(candidate.way, candidate)
    most = max((candidate.expected_ns or 0.0 for candidate in candidates_by_way.values()), default=0.0)

    def rank(candidate: Candidate) -> tuple[bool, int, float]:
        saved = candidate.expected_ns or 0.0
        near = saved >= most - LEAST_SAVING_SHARE * step_ns
        return not near, -len(candidate.members) if near else 0, -saved

    return sorted(candidates_by_way.values(), key=rank)[:MOST_SETS]


def halves(candidate: Candidate, candidates: Iterable[Candidate]) -> list[Candidate]:
    """The two halves of a set that failed: the members that add the most, and the rest; halves of one way are left
    out."""
    ranked = sorted(range(len(candidate.members)), key=lambda at: -candidate.adds[at][0])
    middle = (len(ranked) + 1) // 2
    return [
        half_set
        for half in (ranked[:middle], ranked[middle:])
        if (half_set := part(candidate, half, candidates)) is not None
    ]


def without(candidate: Candidate, way: str, candidates: Iterable[Candidate]) -> Candidate | None:
    """A set without a way that can't be applied; None where only one way is left, which is a candidate itself."""
    return part(candidate, [at for at, name in enumerate(candidate.members) if name != way], candidates)


def part(candidate: Candidate, places: Sequence[int], candidates: Iterable[Candidate]) -> Candidate | None:
    """Some of a set's members as a set, predicted by what each adds to the others; None for fewer than two."""
    names = [candidate.members[at] for at in sorted(places)]
    by_way = {other.way: other for other in candidates}
    if len(names) < 2 or not set(names) <= set(by_way):
        return None
    adds = tuple(candidate.adds[at] for at in sorted(places))
    total = tuple(sum(ends) for ends in zip(*adds, strict=True))
    most = (candidate.expected_ns or 0.0, candidate.low_ns or 0.0, candidate.high_ns or 0.0)
    expected, low, high = (min(summed, its) for summed, its in zip(total, most, strict=True))
    return _joined([by_way[name] for name in names], (expected, min(low, expected), max(high, expected)), adds)


def may_not_pay(candidate: Candidate, step_ns: float) -> list[str]:
    """The members of a set that are predicted to add little, the least first, but never all members."""
    left = max(step_ns - (candidate.expected_ns or 0.0), 0.0)
    ranked = sorted(zip(candidate.members, candidate.adds, strict=True), key=lambda pair: pair[1][0])
    return [name for name, adds in ranked[:-1] if adds[0] < MAY_NOT_PAY * left]


def leaving_out(candidate: Candidate, kept: Sequence[Candidate]) -> Candidate:
    """The candidate that tries the step without a kept way."""
    return Candidate(
        way=f"without {candidate.way}",
        treatment=candidate.treatment,
        leaves_out=candidate.way,
        fresh=any(member.fresh for member in kept),
        compiles=any(member.compiles for member in kept if member.way != candidate.way),
    )


def _stands_in_a_set(candidate: Candidate) -> bool:
    """Whether a way can be in a set: it is predicted for the same work, and needs neither minutes nor its own
    process."""
    return (
        candidate.expected_ns is not None
        and candidate.work == 1.0
        and not (candidate.slow or candidate.fresh or candidate.why_not)
    )


def _at_odds(members: Sequence[Candidate]) -> bool:
    """Whether any two members conflict."""
    return any(
        first.treatment == second.treatment or {second.way, second.treatment} & set(first.conflicts)
        for first in members
        for second in members
        if first is not second
    )


def _built(fit: Sequence[Candidate], predict: Predict, step_ns: float) -> list[Candidate]:
    """A set built by adding the way that is predicted to add the most, as long as it adds enough; of equals the
    first."""
    members: list[Candidate] = []
    saved = 0.0
    while True:
        predicted = [
            (found[0], candidate)
            for candidate in fit
            if not _at_odds([*members, candidate]) and candidate not in members
            and (found := predict(_names([*members, candidate]), 1.0)) is not None
        ]  # fmt: skip
        most, candidate = max(predicted, key=lambda pair: pair[0], default=(0.0, None))
        if candidate is None or most - saved < LEAST_SAVING_SHARE * step_ns:
            return members
        members, saved = [*members, candidate], most


def _with_always(members: list[Candidate], by_way: Mapping[str, Candidate]) -> list[Candidate]:
    """A set of two or more ways, and the ways of ALWAYS that do not conflict with it."""
    for name in sorted(ALWAYS_IN_SETS & set(by_way)) if len(members) > 1 else ():
        more = [*members, by_way[name]]
        members = members if by_way[name] in members or _at_odds(more) else more
    return members


def _set_of(members: Sequence[Candidate], predict: Predict) -> Candidate | None:
    """A set with its prediction; None where it has none."""
    whole = predict(_names(members), 1.0)
    if whole is None:
        return None
    adds = []
    for member in members:
        rest = predict(_names([other for other in members if other is not member]), 1.0) or (0.0, 0.0, 0.0)
        ends = [both - its for both, its in zip(whole, rest, strict=True)]
        adds.append((ends[0], min(ends), max(ends)))
    return _joined(members, whole, tuple(adds))


def _joined(members: Sequence[Candidate], saving: Saving, adds: tuple[Saving, ...]) -> Candidate:
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
        expected_ns=saving[0], low_ns=saving[1], high_ns=saving[2],
        members=tuple(inward.way for inward in inwards),
        adds=tuple(adds[at] for at in places),
    )  # fmt: skip


def _names(members: Sequence[Candidate]) -> list[str]:
    return list(dict.fromkeys(name for member in members for name in member.as_if))
