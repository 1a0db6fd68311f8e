"""A prediction on the terminal: the machines compared by time, bound and memory, and what differs between them."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr import units
from gobrrr.model.diagnosis import ChangedOp, Diagnosis, MachineRow
from gobrrr.report.layout import Line, Page, row
from gobrrr.report.text import sanitise

NAME, TIME_CELLS, DEVICE_CELLS, BOUND_CELLS, MEMORY_CELLS = 16, 26, 9, 9, 8
LEAST_NAME = 12
"""Widths of the columns at 80 columns, and the least width of the names, in terminal cells."""

MOST_CHANGED_SHOWN = 3
"""Operations with a changed bottleneck that are listed; chosen."""

PREDICT_EXAMPLE = '''"""A training step for `gobrrr predict workload.py:workload --on h100,a100-80gb`. No GPU needed."""

import torch
from torch import nn

import gobrrr


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, s, w = x.shape
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, w))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


def workload():
    # gobrrr predict pretends to have a GPU, so this is "cuda" there
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(*(Block(1024, 16) for _ in range(12)), nn.Linear(1024, 32000)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    x = torch.randn(8, 1024, 1024, device=device)
    target = torch.randint(0, 32000, (8 * 1024,), device=device)

    def step():
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x).flatten(0, 1), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return gobrrr.Workload(model=model, step=step, optimizer=optimizer)
'''


def section(diagnosis: Diagnosis, page: Page) -> list[Line]:
    """The table of machines and what differs between them; empty if the diagnosis is not a prediction."""
    rows = diagnosis.machines
    if not rows:
        return []
    heads = ("step, and its interval", "device", "bound", "memory", "light")
    lines = _cells(page, "Predicted", *heads, style="bold")
    lines += [line for machine in rows for line in _row(page, machine)]
    about = [host(rows[0]), *([] if diagnosis.memory_peak_bytes is None else [memory(diagnosis)]), gap(rows)]
    lines += page.wrapped(" ".join(about), first=" ", style="dim")
    first, *others = rows
    said = alike([other for other in others if not other.changed], first)
    said += [changes(same, first) for same in _by_change(others)]
    for text in filter(None, said):
        lines += page.wrapped(text, first=f"   {page.glyphs.dot} ", style="dim")
    return lines


def _cells(
    page: Page, name: str, time: str, device: str, bound: str, memory: str, least: str, *, style: str = ""
) -> list[Line]:
    wide, long = max(NAME + page.width - 80, LEAST_NAME), _time_cells(page)
    time = time if len(time) <= long else "step"
    cells = f" {time:<{long}} {device:>{DEVICE_CELLS}}  {bound:<{BOUND_CELLS}} {memory:<{MEMORY_CELLS}}{least:>5}"
    return row(name, wide, cells, styles=(style, style))


def _time_cells(page: Page) -> int:
    """Width of the column of times: a narrow page has no room for the interval."""
    return TIME_CELLS + min(page.width - 80 + NAME - LEAST_NAME, 0)


def _row(page: Page, machine: MachineRow) -> list[Line]:
    own = units.duration(machine.step_ns)
    time = (
        f"{own} ({units.duration_range(machine.low_ns, machine.high_ns)})" if _time_cells(page) == TIME_CELLS else own
    )
    fits = {True: "fits", False: "too big", None: units.UNKNOWN_TEXT}[machine.fits]
    known = machine.speed_of_light_ns is not None and machine.step_ns > 0
    least = units.percent((machine.speed_of_light_ns or 0.0) / machine.step_ns) if known else units.UNKNOWN_TEXT
    bound = {"communication": "comm."}.get(machine.regime, machine.regime)
    device = units.duration(machine.device_ns)
    return _cells(page, sanitise(machine.machine), time, device, bound, fits, least)


def host(machine: MachineRow) -> str:
    """The host's time for the step, the same on every machine."""
    own = units.duration(machine.host_ns)
    faster = f"; a faster one lowers the low end ({machine.host.partition(';')[0]})" if machine.host else ""
    return f"Issuing the step takes the host {own}, whatever the GPU{faster}."


def memory(diagnosis: Diagnosis) -> str:
    """The memory peak in words."""
    held = units.bytes_(diagnosis.memory_peak_bytes)
    return f"Tensors hold {held} at their peak; the allocator and libraries take more."


def gap(rows: list[MachineRow]) -> str:
    """The article's widening gap between compute and bandwidth, for this step.

    The step's intensity is an average over operations on both sides of a ridge; their times decide what bounds it.
    """
    own = next((machine.step_flop_per_byte for machine in rows if machine.step_flop_per_byte), None)
    known = [machine for machine in rows if machine.ridge_flop_per_byte]
    if own is None or not known:
        return "The FLOP per byte of the step is not known."
    ridges = ", ".join(f"{machine.ridge_flop_per_byte:.0f} on {sanitise(machine.machine)}" for machine in known)
    return (
        f"The step does {own:.0f} FLOP a byte on average; a 16-bit operation is bound by memory "
        f"below {ridges}, else by compute."
    )


def alike(rows: list[MachineRow], first: MachineRow) -> list[str]:
    """The speed, relative to the first, of machines on which no operation changes its bottleneck."""
    named: dict[str, list[str]] = {}
    for machine in rows:
        if machine.step_ns:
            name = f"{sanitise(machine.machine)} {_factor(machine, first):.2f}"
            named.setdefault(bound(machine), []).append(name)
    return [f"times as fast as {sanitise(first.machine)}: {', '.join(names)}; {why}" for why, names in named.items()]


ROOF_REGIMES = ("compute", "memory", "mixed")
"""Regimes in which the roofs of the machine bound the step."""


def bound(machine: MachineRow) -> str:
    """What bounds the step on a machine on which no operation changes its bottleneck."""
    if machine.regime in ROOF_REGIMES:
        return "the long operations have the same bottleneck there"
    if machine.regime == "overhead":
        return "the host bounds the step there, not a roof"
    return (
        f"{machine.regime} bounds the step there, not a roof"
        if machine.regime != "unknown"
        else "what bounds it is not known"
    )


def _factor(machine: MachineRow, first: MachineRow) -> float:
    return first.step_ns / machine.step_ns


def _by_change(rows: list[MachineRow]) -> list[list[MachineRow]]:
    """The machines on which operations change their bottleneck, grouped by equal changes."""
    found: dict[tuple[tuple[str, str, str], ...], list[MachineRow]] = {}
    for machine in rows:
        if machine.changed:
            found.setdefault(tuple((item.op, item.shapes, item.bound) for item in machine.changed), []).append(machine)
    return list(found.values())


def _shape(item: ChangedOp) -> str:
    """The shape of an operation's first tensor: enough to recognise it."""
    first, more, _ = item.shapes.partition(", [")
    return f"{first}, ..." if more else first


def changes(same: Sequence[MachineRow], first: MachineRow) -> str:
    """Which operations change their bottleneck on machines with the same changes, compared with the first machine."""
    speeds = ", ".join(
        f"{sanitise(machine.machine)} {_factor(machine, first):.2f}" if machine.step_ns else sanitise(machine.machine)
        for machine in same
    )
    changed = same[0].changed
    parts = [f"{item.op.removeprefix('aten::')} {_shape(item)} {item.bound}" for item in changed[:MOST_CHANGED_SHOWN]]
    more = f" and {len(changed) - MOST_CHANGED_SHOWN} more" if len(changed) > MOST_CHANGED_SHOWN else ""
    about = f"times as fast as {sanitise(first.machine)}: {speeds}"
    return f"{about}; other bottleneck there: {'; '.join(map(sanitise, parts))}{more}"
