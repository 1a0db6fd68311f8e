"""Keep keys and values of the rows that are there, and compute the new row alone.

The first call computes all rows and fills the cache, each one after it is given the last row. Attention reads the kept
keys and values; positions go on from where the cache ends. In Transformers `generate` does it with `use_cache=True`.

Replayed: at the most each operation loses the share of its time that belongs to rows which were there, at the least
that share of its bytes: a matrix product with one row still reads all weights.
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


def _how(evidence: Evidence, _: Finding) -> str:
    mine = repeated(evidence, "rows")
    return said(GENERAL, place(mine[0].again.source) if mine else "")


predict = advice("R03", _how, "attention is causal: rows before the last one came out as in the turn before")
