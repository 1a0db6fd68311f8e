"""Compute all experts in one grouped matmul instead of a loop on the host.

A loop over experts asks the device which tokens each expert gets (a wait), then launches a dozen small kernels for
that expert. Sorted once, the tokens of all experts go through `torch.nn.functional.grouped_mm` (`torch._grouped_mm` in
older versions) with the experts' offsets: about thirty launches for all experts, and no wait.

Predicted: the host does not wait in the loop, and takes the time of 30 launches for it (sorting, gathering, two
matmuls, the activation and the sum); twice that at the low end. The device's work there takes as long as now at the low
end, and its floors at the high end.
"""

from __future__ import annotations

from gobrrr import units
from gobrrr.analysis.events.intervals import inside_spans
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import path_of
from gobrrr.analysis.host.waits import expert_loop, inner_waits
from gobrrr.analysis.savings.effects import all_of
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.analysis.savings.regions import in_loop, loop_spans, unwaiting
from gobrrr.model.events import I8
from gobrrr.treatments.framework.wording import said, where

NAME = "grouped-matmul"
NUMERICS = "rounding"
GROUPED_LAUNCHES = 30
"""Launches that the grouped form of one MoE layer makes, counted in the shipped trace moe_host_loop.fixed."""
CODE = """
flat = idx.flatten()
order = flat.argsort()
offs = torch.bincount(flat, minlength=experts).cumsum(0).to(torch.int32)
tokens = order // k
h = torch.nn.functional.grouped_mm(x[tokens], w1, offs=offs)
h = torch.nn.functional.grouped_mm(torch.nn.functional.gelu(h), w2, offs=offs)
out = torch.zeros_like(x).index_add_(0, tokens, h * p.flatten()[order, None])
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """Removes the loop's waits, and its launches except those of the grouped form."""
    finding = found.finding
    if finding.code not in ("O01", "O04"):
        return None
    waits = inner_waits(evidence)
    loops = expert_loop(evidence, waits)
    if loops is None:
        return None
    inside = _launches_in_loop(evidence, waits)
    turns = f"the {units.things(round(loops), 'turn')} of the loop over experts"
    how = said(f"one torch.nn.functional.grouped_mm for {turns}: gobrrr explain {NAME}", where(finding))
    launches = units.a_step(path_of(evidence).launches, "piece of device work")
    assumes = f"{units.count(inside - GROUPED_LAUNCHES)} of {launches} disappear, and the waits with them"
    kept = min(GROUPED_LAUNCHES / max(inside, 1.0), 1.0)
    return TreatmentPlan(
        how, assumes, all_of(unwaiting(evidence), in_loop(evidence, waits, min(2 * kept, 1.0), kept)), once=True
    )


def _launches_in_loop(evidence: Evidence, waits: I8) -> float:
    """Launches per step within the loop."""
    events, links = evidence.events, evidence.priced.links
    called = events.start_ns[links.launch[links.launch >= 0]]
    return float(inside_spans(called, *loop_spans(evidence, waits)).sum()) / evidence.recorded_steps.count
