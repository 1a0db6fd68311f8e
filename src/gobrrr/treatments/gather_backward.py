"""Choose rows with an operation whose backward pass adds in any order.

`index_select` and `gather` go back with `index_add` and `scatter_add`, an embedding with a kernel of its own; none of
them sorts on the way, or queues for a place. For a handful of rows the backward pass of a one-hot matmul is a matmul.

Where the program adds values by index itself, with `index_put_(..., accumulate=True)`, `index_add_` does the same.

Replayed: what the finding claims, from its low to its high end.

The sums come out in another order, on a GPU in another one each time: with `use_deterministic_algorithms` these forms
sort as well and nothing is gained.
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

BACKWARD = ("rows = table.index_select(0, ids)", "table[ids]")
FORWARD = ("table.index_add_(0, ids, values)", "table.index_put_((ids,), values, accumulate=True)")
"""What to write, and in place of what: to read rows, and to add values to them."""


def _how(evidence: Evidence, finding: Finding) -> str:
    adding = accumulations(evidence)
    code, old = FORWARD if len(adding) and all(one.forward for one in adding) else BACKWARD
    return line(code, where(finding), f"for {old}")


predict = advice("M08", _how, "rows of one dimension are chosen, and sums in any order will do")
