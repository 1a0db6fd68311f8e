"""Experiment 3: do all activation functions cost the same, whatever they compute?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gobrrr.lab import article
from gobrrr.lab.judge import interval, judged, ratio, within
from gobrrr.lab.session import ITEM_BYTES, Lab
from gobrrr.lab.tables import columns
from gobrrr.model.experiment import Experiment, LabTable
from gobrrr.model.measured import Quantity

NAMES = ("relu", "leaky_relu", "sigmoid", "tanh", "silu", "gelu", "elu", "softplus", "mish")
LIMIT = 1.15
"""The dearest over the cheapest, up to which they cost "nearly the same"."""


def run(lab: Lab) -> Experiment:
    """Time each on the same tensor, with a copy beside them."""
    torch = lab.torch
    x = torch.randn(lab.floats().numel(), device=lab.device.spec)
    out = torch.empty_like(x).fill_(0.5)
    times = {"copy": lab.time(lambda: out.copy_(x))}
    for name in NAMES:
        call = _out(torch, name)
        times[name] = lab.time(lambda call=call: call(x, out=out))  # type: ignore[misc]
    return result(times, x.numel(), lab.settings(elements=x.numel(), dtype="float32", mode="eager"))


def _out(torch: Any, name: str) -> Any:
    """The form that writes to memory that is there already: no allocation is timed."""
    if name == "relu":  # its own such form is a detour over a copy; relu itself calls clamp_min
        return lambda x, out: torch.clamp_min(x, 0, out=out)
    return getattr(torch.ops.aten, name).out


def result(times: Mapping[str, Quantity], elements: int, settings: dict[str, str]) -> Experiment:
    """The record of the times by function: pure."""
    copy, functions = times["copy"], {name: took for name, took in times.items() if name != "copy"}
    cheap = min(functions, key=lambda name: functions[name].value)
    dear = max(functions, key=lambda name: functions[name].value)
    spread = ratio(functions[dear], functions[cheap])
    here = f"{dear} takes {interval(spread)} times as long as {cheap}"
    rule = f"the dearest takes at most {LIMIT} times as long as the cheapest"
    verdict = within(spread, 0.0, LIMIT)
    return Experiment(
        name="activations",
        title="Activation functions cost the same",
        tables=(_table(times, copy, elements),),
        judgements=(judged(article.ACTIVATIONS, verdict, here, rule),),
        settings=settings,
    )


def _table(times: Mapping[str, Quantity], copy: Quantity, elements: int) -> LabTable:
    heads = columns("", "time [s]", "bandwidth [B/s]", "over a copy [x]", "H100 time [s]")
    rows = []
    for name, took in times.items():
        there = article.h100().get(name)
        moved = took.rate(2.0 * elements * ITEM_BYTES)
        rows.append((name, took, moved, took.value / copy.value, there * 1e-3 if there else None))
    return LabTable(title="One activation, eager (H100: 2^26 floats)", columns=heads, rows=tuple(rows))
