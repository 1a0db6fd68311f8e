"""Let float32 matmuls run on the tensor cores as TF32.

TF32 keeps float32's range and storage and rounds the operands of a matmul to 10 bits of mantissa: about 3e-4 relative
error a matmul. Nothing else in the program changes.

Predicted: at the low end each float32 contraction runs at the TF32 peak with the share of the peak that it has now; at
the high end half-way from there to the finding's high end.

It gains nothing for float64, for memory-bound matmuls, and where matmuls are a small share of the step. Use either the
old or the new precision switches of PyTorch, not both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.effects import all_of, of_calls
from gobrrr.analysis.savings.elsewhere import in_type
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying
from gobrrr.treatments.framework.way import SETTINGS, TreatmentWay, UnfitWay

NAME = "tf32"
NUMERICS = "rounding"
CODE = """
torch.set_float32_matmul_precision("high")
torch.backends.cudnn.allow_tf32 = True  # convolutions; the default
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """From the low end of the finding, which is TF32, half-way to its high end."""
    if found.finding.code not in ("C01", "C03") or not evidence.device.tensor_cores:
        return None
    switches = evidence.profile.switches
    convolutions = switches is not None and switches.conv_tf32 is False
    how = CODE.strip() if convolutions else 'torch.set_float32_matmul_precision("high")'
    assumes = "TF32 kernels reach the share of their peak that float32 has now"
    claim = found.claim
    shorter = of_calls(evidence, claim.unit, claim.low, claim.low + (claim.ns - claim.low) / 2, better=True)
    typed = in_type(evidence, "tf32")
    return TreatmentPlan(how, assumes, all_of(lambda _: typed, shorter))


AMPERE = 8
"""The first compute capability with TF32 tensor cores."""


def ways(workload: Workload) -> Iterator[TreatmentWay | UnfitWay]:
    """The switches for matmuls and convolutions, in the interface that the program uses."""
    if not applying.on_cuda(workload):
        yield UnfitWay(NAME, "TF32 needs a CUDA device")
        return
    import torch

    if torch.cuda.get_device_capability()[0] < AMPERE:
        yield UnfitWay(NAME, "this device has no TF32")
    elif _on():
        yield UnfitWay(NAME, "float32 matmuls run in TF32 already")
    else:
        code = CODE if _legacy() else 'torch.backends.cuda.matmul.fp32_precision = "tf32"'
        yield TreatmentWay(
            name=NAME,
            treatment=NAME,
            apply=applying.entered(lambda _: switched()),
            code=code.strip(),
            numerics="rounding",
            rank=SETTINGS,
            as_if=(NAME,),
        )


@contextmanager
def switched() -> Iterator[None]:
    """Runs matmuls and convolutions in TF32, and restores every switch afterwards.

    Reading an old switch raises once a new one has another value, so this uses the interface that the program uses. The
    old setters also write the new switches, which are restored one by one.
    """
    import torch

    legacy = _legacy()
    new = [(owner, owner.fp32_precision) for owner in _owners()]
    old: list[tuple[Callable[[Any], None], Any]] = []
    if legacy:
        old.append((torch.set_float32_matmul_precision, torch.get_float32_matmul_precision()))
        old.append((_cudnn, torch.backends.cudnn.allow_tf32))
    try:
        if legacy:
            torch.set_float32_matmul_precision("high")
            torch.backends.cudnn.allow_tf32 = True
        else:
            torch.backends.cuda.matmul.fp32_precision = "tf32"
            torch.backends.cudnn.conv.fp32_precision = "tf32"
        yield
    finally:
        for put, value in old:
            put(value)
        for owner, value in new:
            owner.fp32_precision = value


def _cudnn(value: bool) -> None:
    import torch

    torch.backends.cudnn.allow_tf32 = value


def _owners() -> list[Any]:
    """The objects with a switch of the new interface, the general ones first; none before torch 2.9."""
    import torch

    backends = torch.backends
    named = [(backends.cudnn, name) for name in ("conv", "rnn")]
    named += [(backends.cuda, "matmul"), *((backends.mkldnn, name) for name in ("matmul", "conv", "rnn"))]
    found = [getattr(owner, name, None) for owner, name in named]
    return [owner for owner in found if _has_switch(owner)]


def _has_switch(owner: Any) -> bool:
    try:
        return isinstance(owner.fp32_precision, str)
    except (AttributeError, RuntimeError):
        return False


def _legacy() -> bool:
    """Whether the old switches can be read, because no new one was set."""
    import torch

    try:
        torch.get_float32_matmul_precision()
        _ = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    except RuntimeError:
        return False
    return True


def _on() -> bool:
    import torch

    if _legacy():
        return bool(torch.backends.cuda.matmul.allow_tf32)
    return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")
