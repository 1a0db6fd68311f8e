"""Give a large embedding a sparse gradient.

With `sparse=True` the gradient holds only the rows that were looked up, and `SparseAdam`, `SGD` or `Adagrad` update
only those. That is another optimizer: the moments of other rows do not decay, momentum and weight decay apply to used
rows only or not at all, and a norm for clipping has to be computed by hand. Distributed data parallel needs a backend
that reduces sparse tensors.

Predicted: what the finding claims, from its low to its high end. At the high end the passes over the used rows are
left, at the low end four times those and the launches of the additional operations.

A table that shares its weights with the output layer gains nothing: that gradient is dense.
"""

from __future__ import annotations

from gobrrr.analysis.detect.embeddings import dense_tables
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.program import optimizer_of
from gobrrr.model.diagnosis import Finding
from gobrrr.treatments.framework.advice import advice
from gobrrr.treatments.framework.wording import line, where

NAME = "sparse-embedding"
NUMERICS = "statistics"
CODE = """
table = torch.nn.Embedding(rows, width, sparse=True)
for_table = torch.optim.SparseAdam(table.parameters(), lr=lr)
"""


TAKE = ("SGD", "Adagrad")
"""Optimizers of torch.optim that take sparse gradients."""


def _how(evidence: Evidence, finding: Finding) -> str:
    """The largest table, and an optimizer for it where the program's own can't take sparse gradients."""
    tables = sorted(dense_tables(evidence), key=lambda dense_table: -dense_table.rows * dense_table.width)
    size = f"{tables[0].rows}, {tables[0].width}" if tables else "rows, width"
    at = where(finding)
    table = line(f"table = torch.nn.Embedding({size}, sparse=True)", f"looked up by {at}" if at else "")
    optimizer = optimizer_of(evidence)
    if optimizer is not None and optimizer.base in TAKE:
        return table
    update = "for_table = torch.optim.SparseAdam(table.parameters())"
    return f"{table}\n{line(update, f'beside {optimizer.kind}' if optimizer is not None else '')}"


predict = advice("M07", _how, "training works as well without weight decay, and with moments of used rows only")
