"""Allocate the tensor at its final length, and write each new piece in place.

The slice for the new piece is a view, so that the write copies that piece alone. Reading a part (`cache[:, :, : n +
1]`) is a view too. `StaticCache` in Transformers, or `index_copy_` with the position on the device, keep every shape
constant, which a CUDA graph needs; attention then has to mask the part that is not filled.

Predicted: what the finding claims, from its low to its high end: the time for copying earlier pieces, at the low end
less two launches for each concatenation.

It takes the memory of the whole length from the beginning, but less at the peak, where the old and the new tensor were
live at once.
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
    dimension, most = (grown[0].dimension, f"length {grown[0].last} or more") if grown else (2, "the final length")
    new = f"cache[{':, ' * dimension}at : at + 1] = new"
    return line(new, where(finding), f"for torch.cat; cache: made once, with {most} in dimension {dimension}")


predict = advice("M10", _how, "the final length is known, and the filled part is read as a view")
