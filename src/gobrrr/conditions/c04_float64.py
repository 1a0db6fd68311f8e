"""Part of the step runs in float64, because a NumPy array, a default or `model.double()` introduced it.

NumPy arrays are float64 by default. One of them as a factor, a target or a mask turns the result into float64, and
everything computed from it: twice the bytes, and half the arithmetic rate of float32 on a data-centre GPU, a
thirty-second or a sixty-fourth on a consumer GPU. The matrix units' rates do not apply.

## How it is recognised

Calls that read or write float64 tensors. Float64 begins at the first operation of the step that mixes a float64
tensor with a lower type, or copies a lower type into float64; the finding names it with its line.

A live run also sees torch's default type, the model's parameters and the tensors that enter the step, with the lines
that make them float64. Float64 parameters are then the cause, whatever is converted to match them. In a trace the
layers' weights show the same. Where all parameters and inputs are float64 it may be intended (a solver, a simulation):
the finding says so and has low certainty, or medium where the line that made it so is known.

## What it costs

With t a call's time and r its floor in float32 over its floor in float64 (half the bytes, the float32 peak):

    cost (high) = sum of t * (1 - r), and all conversions between float64 and lower types
    cost (low)  = sum of t * (1 - max(r, 1/2)) over the calls that are not conversions

A contraction may run in TF32 if the program allows it, which a trace does not show. The high end therefore uses TF32's
r, unless a live run has seen that TF32 is off. If a live run has seen that it is on, both ends use that r, without the
1/2.

Each call is assumed to reach the same share of its roof as now. Both ends count only while the step waits for the
device.

## What helps

- Cast at the source: `torch.as_tensor(array, dtype=torch.float32)`, `numpy.random.rand(...).astype(numpy.float32)`.
- If the model was made float64 to match such an array: cast the array and remove `.double()`.
- No `torch.set_default_dtype(torch.float64)`, including in imported modules.

It gives nothing where the float64 tensors hold a few numbers (a running loss), and it costs precision where float64 is
needed.

## Sick

```python
scale = torch.from_numpy(numpy.sqrt(numpy.arange(1, 257)))  # float64
y = torch.relu(x * scale)  # and so is this, and all behind it
```

## Healthy

```python
scale = torch.from_numpy(numpy.sqrt(numpy.arange(1, 257))).float()
y = torch.relu(x * scale)
```
"""

from __future__ import annotations

import numpy as np

from gobrrr import units
from gobrrr.analysis.detect.doubles import (
    Float64Origin,
    contractions,
    conversions,
    double_calls,
    float32_share,
    origin,
    tf32_allowed,
)
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.conditions.common import (
    PLACES_SHOWN,
    about_calls,
    by_signature,
    certainty_of,
    of_step,
    place_of_row,
    places,
    unable,
)
from gobrrr.model.diagnosis import Certainty, NotChecked, Place

CODE = "C04"
TITLE = "float64 by accident"
TITLE_ALL = "float64 throughout"

LEAST_FLOAT32_SHARE = 0.5
"""The low end assumes that a call keeps at least this share of its time in float32, as it does of its bytes."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Calls in float64, and the operation that made float64 of a lower type."""
    missing = unable(CODE, evidence)
    if missing:
        return missing
    calls = double_calls(evidence)
    if not len(calls):
        return None
    ns, count = evidence.calls.ns[calls], evidence.steps.count
    turned, allowed = conversions(evidence, calls), tf32_allowed(evidence)
    least, most = (
        np.nan_to_num(float32_share(evidence, calls, tf32=tf32), nan=1.0)
        for tf32 in (allowed is True, allowed is not False)
    )
    high = np.where(turned, ns, ns * (1 - most))
    half = np.where(contractions(evidence, calls) & (allowed is True), 0.0, LEAST_FLOAT32_SHARE)
    low = np.where(turned, 0.0, ns * (1 - np.maximum(least, half)))
    came = origin(evidence)
    total = float(ns.sum()) / count
    facts = [
        f"{units.a_step(len(calls) / count, 'call')} on float64 tensors: {of_step(evidence, total)}",
        f"in float32, at the same share of their roofs, they would take "
        f"{units.duration(total - float(high.sum()) / count)}",
    ]
    if turned.any():
        facts.append(
            f"{units.count(int(turned.sum()) / count)} of them convert from or to a lower type: "
            f"{units.duration(float(ns[turned].sum()) / count)}"
        )
    heaviest = places(evidence, by_signature(evidence, calls))
    return about_calls(
        evidence,
        CODE,
        TITLE if came.way == "operation" else TITLE_ALL,
        (calls, low, high),
        where=[*_where(evidence, came), *heaviest][:PLACES_SHOWN],
        certainty=_certainty(evidence, came),
        treatments=["cast-at-source"],
        facts=[_began(evidence, came), *facts],
    )


def _certainty(evidence: Evidence, came: Float64Origin) -> Certainty:
    if came.way == "operation":
        return certainty_of(evidence)
    return "low" if came.written is None else "medium"


def _where(evidence: Evidence, came: Float64Origin) -> list[Place]:
    """The line that makes float64; the operation that does so in the step."""
    if came.written is not None:
        return [Place(op=_call(came), source=came.written.source, count=None)]
    if came.way != "operation" or came.row is None:
        return []
    return [place_of_row(evidence, came.row, 1.0)]


def _call(came: Float64Origin) -> str:
    """The call that makes float64, without the object before it: ".double()"."""
    call = (came.written.call if came.written is not None else None) or ""
    if came.way == "default":
        return call or "torch.set_default_dtype"
    return call[call.rfind(".") if call.endswith(".double()") else call.rfind(".to(") :] or "the model's parameters"


def _began(evidence: Evidence, came: Float64Origin) -> str:
    source = came.written.source if came.written is not None else None
    where = f": {_call(came)} in {source}" if source else ""
    if came.way == "default":
        return f"torch's default type is float64{where}; this may be intended"
    if came.way == "parameters":
        return f"the model's parameters are float64{where}; this may be intended"
    if came.row is None:
        return "no operation makes float64 of a lower type: parameters and inputs are float64; this may be intended"
    source = evidence.source(came.row)
    where = f" in {source}" if source else ""
    return f"the first operation that makes float64 of a lower type: {evidence.events.name_of(came.row)}{where}"
