"""Take what holds the host out of the step, as its kind allows.

Build tensors from whole arrays, prepare text and images once or in the workers of a DataLoader, ask other threads and
processes ahead of the use of their answer.

Replayed: at the most all that the finding claims of the host's time is gone, at the least none of it: how much of it
the program can do without is not known. What has no known kind is promised nothing.
"""

from __future__ import annotations

from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.holding import claim_of, holders
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import Plan
from gobrrr.treatments.framework.wording import place, said

NAME = "free-host"
NUMERICS = "none"
CODE = """
x = torch.from_numpy(np.stack(frames))  # not torch.tensor(frames), which reads each number as a Python object
"""
GENERAL = "do what holds the host before the loop, or ahead in a thread or a worker"


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """What the docstring says, of what the finding claims for functions of known kinds."""
    finding = found.finding
    if finding.code != "O13":
        return None
    known = [holder for holder in holders(evidence) if holder.kind is not None]
    told = dict.fromkeys(said(holder.kind.remedy, place(holder.source)) for holder in known if holder.kind is not None)
    mine = Found(finding, claim_of(evidence, known))
    return of_claim(evidence, mine, "\n".join(told) or said(GENERAL), "low: the program can't do without it", least=0.0)
