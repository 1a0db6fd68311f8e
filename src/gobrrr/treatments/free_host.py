"""Move what holds the host out of the step.

Build tensors from whole arrays, prepare text and images once or in the workers of a DataLoader, and ask other threads
and processes before their answer is needed.

Predicted: from none to all of the host's time that the finding claims, because it is not known how much of that work
the program needs in the step. For a function of no known kind nothing is promised.
"""

from __future__ import annotations

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.holding import claim_of, holders
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.treatments.framework.wording import place, said

NAME = "free-host"
NUMERICS = "none"
CODE = """
x = torch.from_numpy(np.stack(frames))  # not torch.tensor(frames), which reads each number as a Python object
"""
GENERAL = "do what holds the host before the loop, or ahead in a thread or a worker"
"""Advice where no function of a known kind holds the host."""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """From none to all of what the finding claims for functions of known kinds."""
    finding = found.finding
    if finding.code != "O13":
        return None
    of_known_kind = [holder for holder in holders(evidence) if holder.kind is not None]
    lines = dict.fromkeys(
        said(holder.kind.remedy, place(holder.source)) for holder in of_known_kind if holder.kind is not None
    )
    part = ClaimedFinding(finding, claim_of(evidence, of_known_kind))
    return of_claim(
        evidence, part, "\n".join(lines) or said(GENERAL), "low: the program needs all of it in the step", least=0.0
    )
