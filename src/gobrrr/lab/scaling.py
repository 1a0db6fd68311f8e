"""Experiment 6: step time against batch size, where it is overhead-bound, and the footnote's trap.

The trap: [B, D] x [D, D] with B below D reads D x D weights whatever B is. Its time is as flat as overhead's, but on
the device: doubling B doubles the FLOP and hardly changes the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gobrrr.hardware.measure.matmul import flop
from gobrrr.lab import article
from gobrrr.lab.judge import GROWTH, Knee, all_of, exactly, find_knee, judged
from gobrrr.lab.session import Lab
from gobrrr.lab.tables import columns
from gobrrr.model.experiment import Experiment, Judgement, LabTable, Plot, Series
from gobrrr.model.measured import Quantity

LAYERS = 16
LINEAR_GROWTH = 0.6
"""A doubled batch that costs this much more is past the overhead."""
NOISY = 0.3
"""A time whose quartiles are further apart than this share of it says nothing about 10 %."""
FLAT_BYTES = 0.10


@dataclass(frozen=True)
class Trap:
    """One [B, D] x [D, D]: `bytes` with every matrix touched once, `host_s` what issuing it takes."""

    batch: int
    width: int
    item_bytes: int
    time_s: Quantity

    @property
    def flop(self) -> float:
        """2 B D D."""
        return flop(self.batch, self.width, self.width)

    @property
    def bytes(self) -> float:
        """D D weights, B D read and B D written."""
        return float(self.item_bytes * (self.width**2 + 2 * self.batch * self.width))

    @property
    def intensity(self) -> float:
        """FLOP a byte."""
        return self.flop / self.bytes


def run(lab: Lab) -> Experiment:
    """Sweep the batch of a narrow MLP's training step, then that of one wide matmul."""
    width = lab.sized(cpu=64, gpu=512)
    largest = lab.sized(cpu=4096, gpu=65536)
    step = _mlp(lab.torch, lab.device.spec, width)
    points, batch = [], 1
    while batch <= largest and lab.left_s > 0.4 * lab.budget_s:
        x = lab.torch.randn(batch, width, device=lab.device.spec)
        points.append((float(batch), lab.bench.wall(lambda x=x: step(x), budget_s=0.4)))  # type: ignore[misc]
        batch *= 2
    traps, host_s = _traps(lab)
    settings = lab.settings(mlp=f"{LAYERS} layers of {width}, forward and backward", matmul_width=traps[0].width)
    return result(points, traps, host_s, settings)


def _mlp(torch: Any, spec: str, width: int) -> Callable[[Any], None]:
    nn = torch.nn
    layers = [part for _ in range(LAYERS) for part in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*layers).to(spec)

    def step(x: Any) -> None:
        model.zero_grad(set_to_none=True)
        model(x).square().mean().backward()

    return step


def _traps(lab: Lab) -> tuple[list[Trap], Quantity]:
    """The wide matmul by batch, and what issuing one takes the host."""
    torch, width = lab.torch, lab.sized(cpu=4096, gpu=8192)
    dtype = torch.float32 if lab.cpu or not torch.cuda.is_bf16_supported() else torch.bfloat16
    weight = torch.randn(width, width, device=lab.device.spec).to(dtype)
    found: list[Trap] = []
    batch, largest = 1, lab.sized(cpu=256, gpu=8192)
    while batch <= largest and lab.left_s > 0.05 * lab.budget_s:
        x = torch.randn(batch, width, device=lab.device.spec).to(dtype)
        out = torch.empty_like(x)
        took = lab.bench.time(lambda x=x, out=out: torch.mm(x, weight, out=out), budget_s=0.3)  # type: ignore[misc]
        found.append(Trap(batch, width, weight.element_size(), took))
        batch *= 2
    tiny = torch.randn(8, 8, device=lab.device.spec)
    return found, lab.bench.host(lambda: torch.mm(tiny, tiny))


def result(
    points: Sequence[tuple[float, Quantity]], traps: Sequence[Trap], host_s: Quantity, settings: dict[str, str]
) -> Experiment:
    """The record of both sweeps: pure."""
    knee = find_knee(points)
    return Experiment(
        name="scaling",
        title="Step time against batch size, and the footnote's trap",
        tables=(_steps(points, knee), _trap_table(traps)),
        plots=_plots(points, traps, knee),
        judgements=(_doubling(points, knee), _trap(traps, host_s)),
        notes=(f"issuing one small matmul takes the host {host_s.value * 1e6:.1f} us",),
        settings=settings,
    )


def growths(points: Sequence[tuple[float, Quantity]]) -> list[float | None]:
    """How much longer each point takes than the one before, a share of one; None for the first."""
    values = [quantity.value for _, quantity in points]
    return [None, *(now / before - 1 for now, before in zip(values[1:], values, strict=False))][: len(values)]


def _steps(points: Sequence[tuple[float, Quantity]], knee: Knee | None) -> LabTable:
    heads = columns("batch", "step time [s]", "over half the batch [share]")
    rows = tuple(
        (batch, took, grown, _region(batch, knee)) for (batch, took), grown in zip(points, growths(points), strict=True)
    )
    return LabTable(title="Training step of a narrow MLP", columns=(*heads, *columns("")), rows=rows)


def _region(batch: float, knee: Knee | None) -> str:
    flat = knee is not None and knee.last_flat is not None and batch <= knee.last_flat
    return "overhead-bound" if flat else ""


def _trap_table(traps: Sequence[Trap]) -> LabTable:
    heads = columns("B", "time [s]", "FLOP/byte [FLOP/B]", "compute [FLOP/s]", "bandwidth [B/s]")
    rows = tuple(
        (float(trap.batch), trap.time_s, trap.intensity, trap.time_s.rate(trap.flop), trap.time_s.rate(trap.bytes))
        for trap in traps
    )
    width = traps[0].width if traps else 0
    return LabTable(title=f"The trap: [B, {width}] x [{width}, {width}]", columns=heads, rows=rows)


def _plots(points: Sequence[tuple[float, Quantity]], traps: Sequence[Trap], knee: Knee | None) -> tuple[Plot, ...]:
    marks = ((f"overhead-bound up to {knee.last_flat:g}", knee.last_flat),) if knee and knee.last_flat else ()
    steps = Series(name="MLP step", points=tuple((batch, took.value) for batch, took in points))
    wide = Series(
        name="one wide matmul (the trap)", points=tuple((float(trap.batch), trap.time_s.value) for trap in traps)
    )
    title = "Time against batch size"
    return (Plot(title=title, x="batch", y="time", y_unit="s", series=(steps, wide), marks=marks),)


def _doubling(points: Sequence[tuple[float, Quantity]], knee: Knee | None) -> Judgement:
    rule = f"some doubling costs at most {100 * GROWTH:.0f} %, and the dearest at least {100 * LINEAR_GROWTH:.0f} %"
    grown = [growth for growth in growths(points) if growth is not None]
    if knee is None or not grown:
        return judged(article.DOUBLING, "can't tell", f"only {len(points)} points", rule)
    noisy = [batch for batch, took in points if took.spread > NOISY]
    if len(noisy) * 4 > len(points):
        return judged(article.DOUBLING, "can't tell", f"{len(noisy)} of {len(points)} times are too noisy", rule)
    verdict = all_of([exactly(min(grown) <= GROWTH), exactly(max(grown) >= LINEAR_GROWTH)])
    here = f"doublings cost {100 * min(grown):.0f} to {100 * max(grown):.0f} %; knee {knee.text()}"
    return judged(article.DOUBLING, verdict, here, rule)


def _trap(traps: Sequence[Trap], host_s: Quantity) -> Judgement:
    rule = "from some B to 2 B bytes and time grow by at most 10 %, on a device that takes longer than issuing"
    best = None
    for one, two in pairwise(traps):
        if two.bytes / one.bytes - 1 <= FLAT_BYTES and two.batch < two.width:
            growth = two.time_s.value / one.time_s.value - 1
            if best is None or growth < best[0]:
                best = (growth, one, two)
    if best is None:
        return judged(article.TRAP, "can't tell", "no such pair was measured", rule)
    growth, trap, two = best
    on_device = host_s.value < trap.time_s.value
    more = 100 * (two.bytes / trap.bytes - 1)
    here = f"B {trap.batch} to {two.batch}: bytes +{more:.1f} %, FLOP +100 %, time {100 * growth:+.0f} %"
    return judged(article.TRAP, all_of([exactly(growth <= GROWTH), exactly(on_device)]), here, rule)
