"""A prediction's machines beside each other: time, bound, memory; and what changes from one to the next."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr import units
from gobrrr.model.diagnosis import ChangedOp, Diagnosis, MachineRow
from gobrrr.report.layout import Line, Page, row
from gobrrr.report.text import sanitise

NAME, TIME, DEVICE, BOUND, MEMORY = 16, 26, 9, 9, 8
LEAST_NAME = 12
MOST_CHANGED = 3

EXAMPLE = '''"""A training step for `gobrrr predict workload.py:workload --on h100,a100-80gb`. No GPU is needed."""

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
    # to predict it, a GPU stands here for the one that --on names; to diagnose it, what there is
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
    """The table of machines and what changes between them; empty for what is no prediction."""
    rows = diagnosis.machines
    if not rows:
        return []
    heads = ("a step, and its interval", "device", "bound", "memory", "least")
    lines = _cells(page, "Predicted", *heads, style="bold")
    lines += [line for one in rows for line in _row(page, one)]
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
    time = time if len(time) <= long else "a step"
    cells = f" {time:<{long}} {device:>{DEVICE}}  {bound:<{BOUND}} {memory:<{MEMORY}}{least:>5}"
    return row(name, wide, cells, styles=(style, style))


def _time_cells(page: Page) -> int:
    """Room for the time: on a narrow page none for its interval, and the names are as short as they may be."""
    return TIME + min(page.width - 80 + NAME - LEAST_NAME, 0)


def _row(page: Page, one: MachineRow) -> list[Line]:
    own = units.duration(one.step_ns)
    time = f"{own} ({units.duration_range(one.low_ns, one.high_ns)})" if _time_cells(page) == TIME else own
    fits = {True: "fits", False: "too big", None: units.UNKNOWN}[one.fits]
    known = one.speed_of_light_ns is not None and one.step_ns > 0
    least = units.percent((one.speed_of_light_ns or 0.0) / one.step_ns) if known else units.UNKNOWN
    bound = {"communication": "comm."}.get(one.regime, one.regime)
    device = units.duration(one.device_ns)
    return _cells(page, sanitise(one.machine), time, device, bound, fits, least)


def host(one: MachineRow) -> str:
    """What issuing the step takes, whatever the device: the other half of the model."""
    own = units.duration(one.host_ns)
    faster = f"; a faster one moves the low end ({one.host.partition(';')[0]})" if one.host else ""
    return f"Issuing the step takes a host {own}, whatever the GPU{faster}."


def memory(diagnosis: Diagnosis) -> str:
    """The memory peak, in words."""
    held = units.bytes_(diagnosis.memory_peak_bytes)
    return f"Tensors hold {held} at their peak; the allocator and libraries take more."


def gap(rows: list[MachineRow]) -> str:
    """The article's widening gap between compute and bandwidth, for this step.

    The step's figure is an average: operations on both sides of a ridge make it, and their time decides the bound.
    """
    own = next((one.step_flop_per_byte for one in rows if one.step_flop_per_byte), None)
    known = [one for one in rows if one.ridge_flop_per_byte]
    if own is None or not known:
        return "How many FLOP the step does for a byte is not known."
    ridges = ", ".join(f"{one.ridge_flop_per_byte:.0f} on {sanitise(one.machine)}" for one in known)
    return (
        f"The step does {own:.0f} FLOP a byte, on average over its operations; a 16-bit operation is bound by memory "
        f"below {ridges}, else by compute."
    )


def alike(rows: list[MachineRow], first: MachineRow) -> list[str]:
    """How fast the machines are on which no operation meets another roof against the first, by what bounds them."""
    named: dict[str, list[str]] = {}
    for one in rows:
        if one.step_ns:
            named.setdefault(bound(one), []).append(f"{sanitise(one.machine)} {_factor(one, first):.2f}")
    return [f"times as fast as {sanitise(first.machine)}: {', '.join(each)}; {why}" for why, each in named.items()]


ROOFS = ("compute", "memory", "mixed")


def bound(one: MachineRow) -> str:
    """What bounds a step on a machine on which no operation meets another roof than on the first."""
    if one.regime in ROOFS:
        return "what takes long meets the same roof there"
    if one.regime == "overhead":
        return "the host bounds the step there, not a roof"
    return (
        f"{one.regime} bounds the step there, not a roof" if one.regime != "unknown" else "what bounds it is not known"
    )


def _factor(one: MachineRow, first: MachineRow) -> float:
    return first.step_ns / one.step_ns


def _by_change(rows: list[MachineRow]) -> list[list[MachineRow]]:
    """The machines on which something meets another roof, those on which the same does together."""
    found: dict[tuple[tuple[str, str, str], ...], list[MachineRow]] = {}
    for one in rows:
        if one.changed:
            found.setdefault(tuple((item.op, item.shapes, item.bound) for item in one.changed), []).append(one)
    return list(found.values())


def _shape(item: ChangedOp) -> str:
    """The shapes of an operation as far as the first tensor: enough to know it again."""
    first, more, _ = item.shapes.partition(", [")
    return f"{first}, ..." if more else first


def changes(same: Sequence[MachineRow], first: MachineRow) -> str:
    """What meets another roof on machines that are alike in that than on the first."""
    speeds = ", ".join(
        f"{sanitise(one.machine)} {_factor(one, first):.2f}" if one.step_ns else sanitise(one.machine) for one in same
    )
    changed = same[0].changed
    parts = [f"{item.op.removeprefix('aten::')} {_shape(item)} {item.bound}" for item in changed[:MOST_CHANGED]]
    more = f" and {len(changed) - MOST_CHANGED} more" if len(changed) > MOST_CHANGED else ""
    about = f"times as fast as {sanitise(first.machine)}: {speeds}"
    return f"{about}; other roof there for {'; '.join(map(sanitise, parts))}{more}"
