"""Switch off what was switched on to look for a bug.

Anomaly detection, blocking launches, deterministic algorithms, tracers, debuggers, verbose libraries: around the steps
that are looked into, and off in all others.

Replayed: what the finding claims, from its low to its high end. Of anomaly detection it is the time that its stacks
and checks were seen to take; of a tracer or a debugger between nothing and all that the host does beside computing,
because what it adds to each call can't be told from within.

Without deterministic algorithms two runs differ by rounding.
"""

from __future__ import annotations

from gobrrr.analysis.claims import Found
from gobrrr.analysis.effects import of_claim
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Plan

NAME = "debug-off"
NUMERICS = "rounding"
CODE = """
torch.autograd.set_detect_anomaly(False)
torch.use_deterministic_algorithms(False)
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """What the docstring says, of the finding's stake."""
    finding = found.finding
    if finding.code != "O08":
        return None
    told = next((one for one in finding.evidence if one.startswith("to switch off: ")), "")
    how = told.removeprefix("to switch off: ") or "switch off what was on to look for a bug"
    return of_claim(evidence, found, how, "high: all that the host does is the tracer's, if there is one")
