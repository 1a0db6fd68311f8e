"""Keep the keys and values of earlier rows, and compute only the new row.

The first call computes all rows and fills the cache; each later call is given only the last row. Attention reads the
kept keys and values; positions go on from the end of the cache. In Transformers, `generate` does so with
`use_cache=True`.

Predicted: at the high end each operation loses the share of its time that belongs to earlier rows. At the low end it
loses that share of its bytes: a matrix product with one row still reads all weights.
"""

from __future__ import annotations

from gobrrr.analysis.detect.again import repeated
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.diagnosis import Finding
from gobrrr.treatments.framework.advice import advice
from gobrrr.treatments.framework.wording import place, said

NAME = "kv-cache"
NUMERICS = "rounding"
CODE = """
logits, cache = model(ids, cache=None)  # all rows once
logits, cache = model(ids[:, -1:], cache=cache)  # each turn: the new row; attention reads the kept keys and values
"""
GENERAL = (
    "give the model the new row alone, and keep the keys and values of those before (use_cache=True, past_key_values)"
)
"""The advice; a line is added where one is known."""


def _how(evidence: Evidence, _: Finding) -> str:
    rows = repeated(evidence, "rows")
    return said(GENERAL, place(rows[0].again.source) if rows else "")


predict = advice("R03", _how, "attention is causal: earlier rows come out as in the turn before")
