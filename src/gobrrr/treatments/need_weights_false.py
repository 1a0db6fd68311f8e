"""Do not ask nn.MultiheadAttention for its weights.

`need_weights` is True by default: the module then makes the scores as a tensor of [batch, heads, S, S'], takes their
softmax, averages it over the heads and returns it, whether anybody looks at it or not. With `need_weights=False` it
calls `scaled_dot_product_attention`.

Replayed: what the finding claims, from its low to its high end: what the scores cost on the wall.

`nn.TransformerEncoderLayer` already passes False.
"""

from __future__ import annotations

from gobrrr.analysis.claims import Found
from gobrrr.analysis.effects import of_claim
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Plan

NAME = "need-weights-false"
NUMERICS = "rounding"
CODE = """
y, _ = attention(x, x, x, need_weights=False)
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """What the docstring says, of the finding's stake."""
    finding = found.finding
    if finding.code != "M02" or NAME not in finding.treatments:
        return None
    how = "attention(x, x, x, need_weights=False) of nn.MultiheadAttention"
    return of_claim(evidence, found, how, "nothing reads the weights that it returns")
