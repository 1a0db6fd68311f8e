"""Switch off what was switched on to look for a bug.

Anomaly detection, blocking launches, deterministic algorithms, tracers, debuggers, verbose libraries: use them for the
steps that you look into, and switch them off for all others.

Predicted: what the finding claims, from its low to its high end. For anomaly detection that is the measured time of its
stacks and checks. For a tracer or a debugger it is from nothing to all that the host does besides computing, because
its cost per call can't be seen from within.

Without deterministic algorithms two runs differ by rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying
from gobrrr.treatments.framework.way import SETTINGS, TreatmentWay, UnfitWay
from gobrrr.treatments.framework.wording import said

NAME = "debug-off"
NUMERICS = "rounding"
CODE = """
torch.autograd.set_detect_anomaly(False)
torch.utils.deterministic.fill_uninitialized_memory = False  # deterministic all the same
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """The finding's stake, and what to switch off."""
    finding = found.finding
    if finding.code != "O08":
        return None
    listed = next((line for line in finding.evidence if line.startswith("to switch off: ")), "")
    parts = listed.removeprefix("to switch off: ").split("; ") if listed else ["what was switched on to look for a bug"]
    how = "\n".join(part if "(" in part or " = " in part else said(part) for part in parts)
    return of_claim(evidence, found, how, "high: a tracer, if there is one, causes all of the host's time")


Switch = tuple[str, Callable[[], Any], Callable[[], Any]]
"""The code to paste that switches a feature off, a function that does so, and one that restores the feature."""


def ways(workload: Workload) -> Iterator[TreatmentWay | UnfitWay]:
    """Switches off every debug feature of torch that is on."""
    found = _on()
    if not found:
        yield UnfitWay(NAME, "no debug feature of torch is on")
        return
    yield TreatmentWay(
        name=NAME,
        treatment=NAME,
        apply=applying.entered(lambda _: _off(found)),
        code="\n".join(code for code, _, _ in found),
        numerics="rounding",
        rank=SETTINGS,
        as_if=(NAME,),
    )


def _on() -> list[Switch]:
    import torch

    found: list[Switch] = []
    anomaly, deterministic, cudnn = (
        torch.autograd.set_detect_anomaly, torch.use_deterministic_algorithms, torch.backends.cudnn,
    )  # fmt: skip
    if torch.is_anomaly_enabled():
        check = torch.is_anomaly_check_nan_enabled()
        found.append(
            ("torch.autograd.set_detect_anomaly(False)", lambda: anomaly(False, check), lambda: anomaly(True, check))
        )
    if torch.are_deterministic_algorithms_enabled():
        warn = torch.is_deterministic_algorithms_warn_only_enabled()
        found.append(
            (
                "torch.use_deterministic_algorithms(False)",
                lambda: deterministic(False),
                lambda: deterministic(True, warn_only=warn),
            )
        )
    if cudnn.deterministic:
        found.append(
            (
                "torch.backends.cudnn.deterministic = False",
                lambda: setattr(cudnn, "deterministic", False),
                lambda: setattr(cudnn, "deterministic", True),
            )
        )
    mode = torch.cuda.get_sync_debug_mode() if torch.cuda.is_available() else 0
    if mode:
        set_mode = torch.cuda.set_sync_debug_mode
        found.append(("torch.cuda.set_sync_debug_mode(0)", lambda: set_mode(0), lambda: set_mode(mode)))
    return found


def _off(found: list[Switch]) -> ExitStack:
    stack = ExitStack()
    for _, off, on in found:
        stack.callback(on)
        off()
    return stack
