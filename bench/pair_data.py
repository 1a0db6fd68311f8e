"""Pairs of a faulty and a fixed step, measured without the profiler, with the faulty step's trace.

What predictions of the fixed step are held against. Six groups, which are to be judged apart: the estimate of a step's
time was fitted while `handed` and `labels` were looked at; `further` was predicted once, and what it showed was mended;
then `second` was recorded and predicted (both at first sight: pairs_first_sight.json); `ddp` and `holdout` had no part
in anything. No torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bench.pages import RESULTS, ROOT, read

SHIPPED = ROOT / "src" / "gobrrr" / "data" / "h100"
MORE = ROOT / "tests" / "data" / "h100"
"""Traces that are not part of the package."""

HANDED_RANKS = ROOT.parent / "shared" / "h100" / "ddp"

Group = Literal["handed", "further", "second", "labels", "ddp", "holdout"]
Interval = tuple[float, float]


@dataclass(frozen=True)
class Pair:
    """A step with a fault, and the same work without it."""

    name: str
    group: Group
    faulty: Path
    """The faulty step's trace; of several ranks the first one's."""

    fixed: Path | None
    """The fixed step's trace."""

    faulty_ms: Interval
    """The shortest and the longest of what was measured without the profiler: with a synchronize after each step (the
    median) and in a loop without one, once or twice, on all ranks."""

    fixed_ms: Interval
    """The same, for as much work as a faulty step does."""

    treatments: tuple[str, ...]
    """What turns the one into the other, by the names in gobrrr.treatments."""

    regime: str | None
    """What the faulty step stands for, said before it was measured; None where nobody did."""

    negative: bool
    """The treatment suggests itself and gives nothing, or harm."""

    other_ranks: tuple[Path, ...] = ()
    """Traces of the faulty step on the other ranks."""


HANDED: dict[str, tuple[str, ...]] = {
    "gpt_fp32_notf32": ("bf16-autocast",),
    "gpt_eager_attn": ("sdpa",),
    "mlp_tiny": ("cuda-graph",),
    "pointwise_chain": ("compile",),
    # the fixed step has no work on the host at all, and its copy runs on the step's own stream, pinned
    "resnet_slow_loader": ("dataloader-workers", "prefetch-pinned"),
    "moe_host_loop": ("grouped-matmul",),
    "dit_adaln": ("compile",),
}
"""What each fix of bench/gpu/workloads.py is."""

COMPILED = {"bert_base_b32_s512": True, "dit_xl_b8_s256": True, "vit_b16_b64": False}
"""Models measured eager and compiled; True: the compiled step is no faster (with BERT's mask as a tensor, attention
falls apart into float32 matmuls)."""

RANKS = {
    "ddp_manual_after": ("ddp_good", "comm-overlap"),
    "ddp_accum_sync": ("ddp_accum_nosync", "no-sync"),
}
"""Faulty step: (fixed step, treatment)."""

HELD_OUT = {"loader_workers_0": ("loader_workers_8", ("dataloader-workers", "prefetch-pinned"), "input")}
"""The only two of bench/gpu/holdout.py that do the same work: the batches of eight workers are pinned as well. Models
recur (`pinned_loader`, `compiled_training`), but not with the same input."""


def pairs() -> Iterator[Pair]:
    """All pairs that can be had here: those whose traces are at hand."""
    yield from _handed()
    yield from _labels()
    yield from _ranks()
    yield from _held_out()
    yield from further(RESULTS / "h100_pairs.json", MORE / "pairs")
    yield from further(RESULTS / "h100_pairs_second.json", MORE / "pairs", "second")
    yield from further(RESULTS / "h200_pairs_ranks.json", MORE.parent / "h200" / "pairs", "ddp")


def _times(row: dict[str, Any]) -> list[float]:
    """All timings of a form, in ms: the first round, a second one where there was one, every rank."""
    if "ranks" in row:
        return [time for rank in row["ranks"] for time in _times(rank)]
    rounds = [row, *([row["again"]] if "again" in row else [])]
    return [timing[key] for timing in rounds for key in ("sync_ms", "pipelined_ms")]


def _interval(times: Sequence[float], work: float = 1.0) -> Interval:
    return min(times) / work, max(times) / work


def _handed() -> Iterator[Pair]:
    for name, entry in read(SHIPPED / "truth.json").items():
        yield Pair(
            name=name,
            group="handed",
            faulty=SHIPPED / f"{name}.faulty.json.gz",
            fixed=SHIPPED / f"{name}.fixed.json.gz",
            faulty_ms=_interval(_times(entry["faulty"])),
            fixed_ms=_interval(_times(entry["fixed"])),
            treatments=HANDED[name],
            regime=entry["regime"],
            negative=False,
        )


def _labels() -> Iterator[Pair]:
    measured = read(SHIPPED / "labels.json")
    for name, negative in COMPILED.items():
        yield Pair(
            name=f"{name}.compile",
            group="labels",
            faulty=SHIPPED / f"{name}.fwd.json.gz",
            fixed=SHIPPED / f"{name}.fwd_compiled.json.gz",
            faulty_ms=_interval(measured[name]["fwd"]),
            fixed_ms=_interval(measured[name]["fwd_compiled"]),
            treatments=("compile",),
            regime=None,
            negative=negative,
        )


def rank_files(folder: Path, name: str) -> list[Path]:
    """The traces of a step's ranks in a folder that may hold those of other steps too, the first rank's first."""
    return sorted(folder.glob(f"{name}.rank*.json.gz"), key=lambda path: int(path.name.split(".rank")[1].split(".")[0]))


def _ranks() -> Iterator[Pair]:
    measured = read(SHIPPED / "ddp_truth.json")
    for name, (fixed, treatment) in RANKS.items():
        folder = next((path for path in (MORE, HANDED_RANKS) if rank_files(path, name)), None)
        if folder is None:
            continue
        first, *others = rank_files(folder, name)
        yield Pair(
            name=name,
            group="ddp",
            faulty=first,
            fixed=next(iter(rank_files(folder, fixed)), None),
            faulty_ms=_interval(_times({"ranks": measured[name]})),
            fixed_ms=_interval(_times({"ranks": measured[fixed]})),
            treatments=(treatment,),
            regime="communication",
            negative=False,
            other_ranks=tuple(others),
        )


def _held_out() -> Iterator[Pair]:
    measured = read(RESULTS / "h100_holdout.json")["workloads"]
    folder = MORE / "holdout"
    for name, (fixed, treatments, regime) in HELD_OUT.items():
        yield Pair(
            name=name,
            group="holdout",
            faulty=folder / f"{name}.json.gz",
            fixed=folder / f"{fixed}.json.gz",
            faulty_ms=_interval(_times(measured[name])),
            fixed_ms=_interval(_times(measured[fixed])),
            treatments=treatments,
            regime=regime,
            negative=False,
        )


def further(record: Path, traces: Path, group: Group = "further") -> Iterator[Pair]:
    """What bench/gpu/pairs.py recorded, without the pairs that failed, were skipped or whose faulty trace is not here;
    nothing where there is no record."""
    if not record.is_file():
        return
    for name, entry in read(record)["pairs"].items():
        if "faulty" not in entry or "fixed" not in entry:
            continue
        faulty, fixed = (_traces_of(entry[form], traces) for form in ("faulty", "fixed"))
        if not faulty[0].is_file():
            continue
        yield Pair(
            name=name,
            group=group,
            faulty=faulty[0],
            fixed=fixed[0] if fixed[0].is_file() else None,
            faulty_ms=_interval(_times(entry["faulty"])),
            fixed_ms=_interval(_times(entry["fixed"]), entry["fixed_work"]),
            treatments=tuple(_sized(treatment, entry["fixed_work"]) for treatment in entry["treatments"]),
            regime=entry["regime"],
            negative=entry["negative"],
            other_ranks=tuple(faulty[1:]),
        )


def _sized(treatment: str, work: float) -> str:
    """A treatment by the name that asks for just the work that the fixed step does."""
    return treatment if work == 1.0 else f"{treatment}={work:g}"


def _traces_of(row: dict[str, Any], folder: Path) -> list[Path]:
    return [folder / rank["trace"] for rank in row.get("ranks", [row])]
