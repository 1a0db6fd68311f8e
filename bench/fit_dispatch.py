"""Fit the dispatch model (src/gobrrr/hardware/data/dispatch.json) to the host-bound steps that an H100's host ran.

    python -m bench.fit_dispatch        # torch and transformers needed, no GPU

The step's host time is a sum over what the static door records: operations that launch in the forward pass and in the
optimizer, nn.Module calls, operations that launch in the backward pass, views there, and launches beyond the first of
an operation; what a tensor in an optimizer's list costs was timed alone. The five costs (none below 0) are those with
the least squared relative error over the steps of bench/results/h100_models.json whose device was busy for less than
`HOST_BOUND` of the time.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from bench import pages
from bench.zoo_recordings import Labelled, labelled
from gobrrr.analysis.pricing.expected import expect
from gobrrr.cost import price
from gobrrr.hardware import efficiency, find
from gobrrr.hardware.dispatch import Dispatch, Hosts, listed

TARGET = pages.ROOT / "src" / "gobrrr" / "hardware" / "data" / "dispatch.json"

HOST_BOUND = 0.7
FEATURES = ("forward_ns", "module_ns", "backward_ns", "backward_view_ns", "launch_ns")
FOREACH_CALLS, TENSORS = 9, 200
"""Calls with lists in a step of torch.optim.AdamW (foreach), and the parameters of the one that was timed."""
LATENCY_NS = 3000.0
"""From a launch to the start of the kernel on an idle device: assumed, no command here measures it. It is added where
the device waits, once between two waits of the host, and is small beside an operation's dispatch."""

ARTICLE_ADDS_PER_S = 32e6
"""Additions a second in Python on the article's host (https://horace.io/brrr_intro.html, "Overhead")."""
REPEATED = 1.93
"""The same host-bound step took up to so many times as long when it was run again (h100_models.json, "again")."""
ROUNDS = 20_000


def features(step: Labelled) -> NDArray[np.float64]:
    """How often each cost occurs in a step."""
    machine, table = find("h100"), efficiency.load()
    known = {call.call: expect(call.call, price(call.call), machine, table) for call in step.recording.calls}
    row = np.zeros(len(FEATURES))
    row[1] = step.recording.module_calls
    for call in step.recording.calls:
        kernels = known[call.call].kernels
        if kernels:
            row[2 if call.phase == "backward" else 0] += 1
            row[4] += kernels - 1
        elif call.phase == "backward":
            row[3] += 1
    return row


def lists_ns(step: Labelled) -> float:
    """Host time for the tensors in the lists of a step's optimizer."""
    costs = optimizer_costs()
    names = {True: "fused_tensor_ns", False: "tensor_ns"}
    calls = (call for call in step.recording.calls if call.phase == "optimizer")
    return sum(costs[names[call.call.name.startswith("aten::_fused")]] * listed(call) for call in calls)


def optimizer_costs() -> dict[str, float]:
    """ns a tensor of an optimizer's lists, timed alone: in each foreach call, and in a fused one."""
    timed = pages.read(pages.RESULTS / "h100_ops.json")["host"]["optimizer"]
    each = {name: timed[name]["median"] * 1e3 / TENSORS for name in ("adamw_foreach_200", "adamw_fused_200")}
    foreach, fused = each["adamw_foreach_200"] / FOREACH_CALLS, each["adamw_fused_200"]
    return {"tensor_ns": round(foreach, 1), "fused_tensor_ns": round(fused, 1)}


def fit(steps: Sequence[Labelled]) -> dict[str, float]:
    """The costs in ns, by projected gradient on the relative error."""
    bound = [step for step in steps if step.busy_ns < HOST_BOUND * step.wall_ns]
    rows = np.array([features(step) / step.wall_ns for step in bound])
    left = np.array([max(1.0 - lists_ns(step) / step.wall_ns, 0.0) for step in bound])
    scale = np.linalg.norm(rows, axis=0) + 1e-30
    rows = rows / scale
    value = np.ones(rows.shape[1])
    length = np.linalg.norm(rows.T @ rows, 2)
    for _ in range(ROUNDS):
        value = np.maximum(value - rows.T @ (rows @ value - left) / length, 0.0)
    return dict(zip(FEATURES, (value / scale).round(1).tolist(), strict=True))


def dispatch(costs: dict[str, float]) -> Dispatch:
    """The model with these costs; a view in the forward pass costs what was measured alone."""
    view = pages.read(pages.RESULTS / "h100_ops.json")["host"]["forward"]["view"]["median"] * 1e3
    own = {**costs, **optimizer_costs(), "optimizer_ns": costs["forward_ns"]}
    return Dispatch(**own, view_ns=round(view, 1), latency_ns=LATENCY_NS)


def hosts(model: Dispatch) -> Hosts:
    """The stored record: the measured host is slow; a fast one is taken to be as much faster as the article's."""
    adds = pages.read(pages.RESULTS / "h100_article.json")["python_adds_per_s"]
    about = pages.read(pages.RESULTS / "h100_models.json")
    return Hosts(
        middle=model,
        fast_factor=round(adds / ARTICLE_ADDS_PER_S, 3),
        slow_factor=REPEATED,
        reference_s=reference(),
        source=f"host of an {about['device']}, torch {about['torch']}, {about['date']}; python -m bench.fit_dispatch",
    )


def reference() -> dict[str, float]:
    """Seconds of the host's dispatch, as `gobrrr machine` measured them on such a machine."""
    measured = pages.read(pages.RESULTS / "machine_h100.json")[0]["measured"]
    return {entry["name"]: entry["amount"]["value"] for entry in measured["entries"] if entry["group"] == "dispatch"}


def main() -> int:
    """Write the stored model."""
    costs = fit(labelled())
    TARGET.write_bytes(msgspec.json.format(msgspec.json.encode(hosts(dispatch(costs))), indent=1) + b"\n")
    print(costs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
