"""Read rows with an operation whose backward pass adds in any order.

The backward passes of `index_select` and `gather` are `index_add` and `scatter_add`; an embedding has its own kernel.
None of them sorts the indices or serialises the additions. For a handful of rows, a one-hot matmul has a matmul as its
backward pass.

Where the program itself adds values by index with `index_put_(..., accumulate=True)`, `index_add_` does the same.

Predicted: what the finding claims, from its low to its high end.

The sums are added in another order, on a GPU in a different one each time. With `use_deterministic_algorithms` these
forms sort as well, and nothing is gained.
"""

from __future__ import annotations

from gobrrr.analysis.detect.accumulation import accumulations
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.diagnosis import Finding
from gobrrr.treatments.framework.advice import advice
from gobrrr.treatments.framework.wording import line, where

NAME = "gather-backward"
NUMERICS = "rounding"
CODE = """
rows = table.index_select(0, ids)  # or torch.nn.functional.embedding(ids, table)
"""

ROWS_TO_READ = ("rows = table.index_select(0, ids)", "table[ids]")
ROWS_TO_ADD = ("table.index_add_(0, ids, values)", "table.index_put_((ids,), values, accumulate=True)")
"""(new code, old code): to read rows, whose backward pass adds, and to add values to rows."""


def _how(evidence: Evidence, finding: Finding) -> str:
    adding = accumulations(evidence)
    code, old = ROWS_TO_ADD if len(adding) and all(accumulation.forward for accumulation in adding) else ROWS_TO_READ
    return line(code, where(finding), f"for {old}")


predict = advice("M08", _how, "rows are read along one dimension, and the sums may be added in any order")
