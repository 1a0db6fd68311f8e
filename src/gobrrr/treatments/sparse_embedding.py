"""Give a large embedding a sparse gradient.

With `sparse=True` the gradient holds the rows that were looked up, and `SparseAdam`, `SGD` or `Adagrad` update those.
It is another optimizer: the moments of other rows do not decay, momentum and weight decay apply to used rows only or
not at all, and a norm for clipping has to be taken by hand. Distributed data parallel needs a backend that reduces
sparse tensors.

Replayed: what the finding claims, from its low to its high end. The high end leaves the passes over the used rows,
the low end four times those and what the additional operations take to launch.

A table that shares its weights with the output layer gains nothing: that gradient is dense.
"""

from __future__ import annotations

from gobrrr.analysis.claims import Found
from gobrrr.analysis.effects import of_claim
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Plan

NAME = "sparse-embedding"
NUMERICS = "statistics"
CODE = """
table = torch.nn.Embedding(rows, width, sparse=True)
for_table = torch.optim.SparseAdam(table.parameters(), lr=lr)
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """What the docstring says, of the finding's stake."""
    finding = found.finding
    if finding.code != "M07":
        return None
    how = "nn.Embedding(..., sparse=True), and SparseAdam for its weight"
    assumes = "an optimizer without weight decay, and with moments of used rows only, trains as well"
    return of_claim(evidence, found, how, assumes)
