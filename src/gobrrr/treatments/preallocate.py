"""Make the tensor as long as it will get, and write the new piece in place.

The slice that holds the new piece is a view, the write copies the piece alone. Reading a part (`cache[:, :, : n + 1]`)
is a view too. `StaticCache` in Transformers, or `index_copy_` with the position on the device, keep every shape the
same, which a CUDA graph needs; then attention has to mask what is not filled.

Replayed: what the finding claims, from its low to its high end: the time for copying what was there, at the low end
less two launches for each concatenation.

It takes the memory of the whole length from the beginning, and less at the peak, where old and new were there at once.
"""

from __future__ import annotations

from gobrrr.analysis.detect.growth import growing
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.diagnosis import Finding
from gobrrr.treatments.framework.advice import advice
from gobrrr.treatments.framework.wording import line, where

NAME = "preallocate"
NUMERICS = "none"
CODE = """
cache = torch.empty(batch, heads, most_tokens, width)
cache[:, :, at : at + 1] = new  # at: how many tokens are there
seen = cache[:, :, : at + 1]
"""


def _how(evidence: Evidence, finding: Finding) -> str:
    grown = growing(evidence)
    dimension, most = (grown[0].dimension, f"length {grown[0].last} or more") if grown else (2, "the most that comes")
    new = f"cache[{':, ' * dimension}at : at + 1] = new"
    return line(new, where(finding), f"for torch.cat; cache: made once, with {most} in dimension {dimension}")


predict = advice("M10", _how, "the most that it grows to is known, and the filled part is read as a view")
