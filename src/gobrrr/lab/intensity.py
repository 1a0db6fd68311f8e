"""Experiment 1: `x = x * 2`, repeated in one fused kernel. Memory accesses stay, arithmetic grows: where does time?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gobrrr.lab import article
from gobrrr.lab.judge import Knee, all_of, exactly, exponent, find_knee, judged, within
from gobrrr.lab.session import ITEM_BYTES, Lab
from gobrrr.lab.tables import columns
from gobrrr.model.experiment import Experiment, Judgement, LabTable, Plot, Series
from gobrrr.model.measured import Quantity

GPU_REPEATS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CPU_REPEATS = (1, 4, 16, 32, 64, 128, 256)
ACCESSES = 2
"""Of each element: one read, one write."""
COMPILE_S = 3.0
"""A repeat is not compiled with less than this left."""
TWICE_IS_A_SUM = "a compiler may turn x * 2 into x + x, for which a processor can have other units"
SMALLEST = 2.0**-126
"""The smallest normal float32: starting there, 250 doublings stay finite."""


@dataclass(frozen=True)
class Point:
    """One repeat of the sweep on tensors of `elements` float32."""

    repeat: int
    elements: int
    time_s: Quantity

    @property
    def flop_per_s(self) -> Quantity:
        """The article's N * repeat FLOP a run."""
        return self.time_s.rate(float(self.elements * self.repeat))

    @property
    def bytes_per_s(self) -> Quantity:
        """The article's bytes_per_elem * 2 * N a run."""
        return self.time_s.rate(float(self.elements * ACCESSES * ITEM_BYTES))


def run(lab: Lab) -> Experiment:
    """Sweep the repeat. Raises NoCompilerError where nothing can fuse."""
    x = lab.floats().mul_(SMALLEST)
    out = lab.torch.empty_like(x).fill_(0.5)
    copy = lab.time(lambda: out.copy_(x)).rate(float(x.numel() * ACCESSES * ITEM_BYTES))
    points: list[Point] = []
    for repeat in CPU_REPEATS if lab.cpu else GPU_REPEATS:
        if points and lab.left_s < COMPILE_S:
            break
        call = lab.fused(doubling(repeat), x, out)
        took = lab.time(lambda call=call: call(x, out), 0.02)  # type: ignore[misc]
        points.append(Point(repeat, x.numel(), took))
    return result(points, copy, lab.vector_peak(), lab.settings(elements=x.numel(), dtype="float32"))


def doubling(repeat: int) -> Callable[[Any, Any], None]:
    """The article's function, which writes to memory that is there already: no allocation is timed."""

    def double(x: Any, out: Any) -> None:
        for _ in range(repeat):
            x = x * 2
        out.copy_(x)

    return double


def result(points: Sequence[Point], copy: Quantity, peak: float | None, settings: dict[str, str]) -> Experiment:
    """The record of a sweep: pure."""
    knee = find_knee([(float(point.repeat), point.time_s) for point in points])
    return Experiment(
        name="intensity",
        title="Runtime, FLOP/s and bandwidth against compute intensity",
        tables=(_table(points),),
        plots=_plots(points, knee),
        judgements=tuple(_judgements(points, knee, copy, peak)),
        notes=_notes(knee, peak, copy),
        settings=settings,
    )


def _table(points: Sequence[Point]) -> LabTable:
    heads = columns("repeat", "time [s]", "compute [FLOP/s]", "bandwidth [B/s]", "H100 time [s]")
    there = {int(row[0]): row[1] * 1e-3 for row in article.h100().get("sweep", ())}
    rows = tuple((float(p.repeat), p.time_s, p.flop_per_s, p.bytes_per_s, there.get(p.repeat)) for p in points)
    return LabTable(title="x * 2, repeated in one kernel (H100: 2^26 floats)", columns=heads, rows=rows)


def _plots(points: Sequence[Point], knee: Knee | None) -> tuple[Plot, ...]:
    at = knee.crossing if knee else None
    marks = ((f"knee at {at:.0f}", at),) if at else ()
    curves = (
        ("runtime", "s", [(float(p.repeat), p.time_s.value) for p in points]),
        ("compute", "FLOP/s", [(float(p.repeat), p.flop_per_s.value) for p in points]),
        ("bandwidth", "B/s", [(float(p.repeat), p.bytes_per_s.value) for p in points]),
    )
    return tuple(
        Plot(
            title=f"{name.capitalize()} against compute intensity",
            x="repeat (multiplications an element)",
            y=name,
            y_unit=unit,
            series=(Series(name=name, points=tuple(found)),),
            marks=marks,
        )
        for name, unit, found in curves
    )


def _judgements(points: Sequence[Point], knee: Knee | None, copy: Quantity, peak: float | None) -> list[Judgement]:
    return [_flat(points, knee), _linear(points, knee), _bandwidth(points, copy), _general(points, peak)]


def _flat(points: Sequence[Point], knee: Knee | None) -> Judgement:
    low, high = article.A100_KNEE
    rule = f"time is flat (within 10 %) at {low:.0f} multiplications and has grown at {2 * high:.0f}"
    if knee is None:
        return judged(article.FLAT, "can't tell", f"only {len(points)} points", rule)
    flat_enough = knee.last_flat is not None and knee.last_flat >= low
    grown = knee.first_grown is not None and knee.first_grown <= 2 * high
    verdict = exactly(flat_enough and grown) if knee.certain else "can't tell"
    return judged(article.FLAT, verdict, f"knee {knee.text()}; A100 32 to 64, H100 64 to 128", rule)


def _linear(points: Sequence[Point], knee: Knee | None) -> Judgement:
    rule = "FLOP/s grows with the repeat to the power of 0.9 to 1.1 over the flat part"
    flat = [point for point in points if knee and knee.last_flat is not None and point.repeat <= knee.last_flat]
    if len(flat) < 2:
        return judged(article.LINEAR, "can't tell", "fewer than two points in the flat part", rule)
    first, last = flat[0], flat[-1]
    ends = ((float(first.repeat), first.flop_per_s.value), (float(last.repeat), last.flop_per_s.value))
    power = exponent(*ends)
    here = f"power {power:.2f} from {first.repeat} to {last.repeat} multiplications"
    return judged(article.LINEAR, exactly(0.9 <= power <= 1.1), here, rule)


def _bandwidth(points: Sequence[Point], copy: Quantity) -> Judgement:
    rule = "at repeat 1 at least 80 % of a copy's bandwidth, at the last repeat less than half of that at repeat 1"
    first, last = points[0].bytes_per_s, points[-1].bytes_per_s
    starts = Quantity(
        value=first.value / copy.value, low=first.low / copy.high, high=first.high / copy.low, runs=first.runs
    )
    verdict = all_of([within(starts, 0.8, float("inf")), exactly(last.value < first.value / 2)])
    here = f"starts at {starts.value:.2f} of a copy's, ends at {last.value / copy.value:.2f}"
    return judged(article.NEAR_PEAK, verdict, here, rule)


def _general(points: Sequence[Point], peak: float | None) -> Judgement:
    rule = "the best FLOP/s of multiplications alone is 40 to 60 % of the fused multiply-add peak"
    best = max((point.flop_per_s for point in points), key=lambda point: point.value)
    if peak is None:
        return judged(article.FOOTNOTE, "can't tell", "the peak here is not known; gobrrr machine measures it", rule)
    share = best.scaled(1 / peak)
    return judged(article.FOOTNOTE, within(share, 0.4, 0.6), f"{share.value:.2f} of the peak", rule)


def _notes(knee: Knee | None, peak: float | None, copy: Quantity) -> tuple[str, ...]:
    if peak is None:
        return (TWICE_IS_A_SUM,)
    # N * repeat / (peak / 2) = N * 2 * 4 bytes / bandwidth
    expected = peak / 2 / copy.value * ACCESSES * ITEM_BYTES
    roof = f"half of {peak / 1e12:.3g} TFLOP/s over the copy's bandwidth"
    return (f"the roofline expects the knee at {expected:.0f} ({roof})", TWICE_IS_A_SUM)
