"""Multiply in the order that needs the fewest FLOPs.

Use parentheses for a product that is written out, `torch.linalg.multi_dot` for a chain, opt_einsum for an einsum of
three or more operands (torch uses it where it is installed), one contraction for an outer product that is summed, and
`torch.cdist` for distances from the differences of all pairs.

Predicted: what the finding claims, from its low to its high end: the cheapest order, at half of the share of its roof
that the present order reaches, up to that share. The numbers differ by rounding.
"""

from __future__ import annotations

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.treatments.framework.wording import said, where

NAME = "reorder-contraction"
NUMERICS = "rounding"
CODE = """
y = A @ (B @ v)  # or torch.linalg.multi_dot([A, B, v])
z = torch.einsum("ij,jk,bk->bi", A, B, x)  # with opt_einsum installed
g = x.T @ y  # for (x.unsqueeze(2) * y.unsqueeze(1)).sum(0)
d = torch.cdist(a, b).square()  # for (a[:, None] - b[None]).pow(2).sum(-1)
"""

CHEAPER_FORMS = {
    "aten::einsum": "two einsums in the cheaper order, or opt_einsum installed",
    "aten::sub": "torch.cdist(a, b), squared where squares are wanted: one matrix product",
}
"""What to write in place of an operation that is not a chain of products."""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """The finding's stake."""
    finding = found.finding
    if finding.code != "C05":
        return None
    first = finding.where[0] if finding.where else None
    how = said(CHEAPER_FORMS.get((first and first.op) or "", "parentheses: A @ (B @ v)"), where(finding))
    return of_claim(evidence, found, how, "nothing else reads the product in between")
