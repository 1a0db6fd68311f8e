"""Put sequences of about one length into a batch, or several into one row.

Sort within a window of the shuffled data, cut it into batches, shuffle the batches, and pad each to its own longest
sequence (in Transformers `group_by_length=True` and a collator that pads dynamically). Or pack: rows full of sequences,
with attention and positions that keep them apart. Packing changes how many sequences a step sees.

Replayed: of the finding, between nothing and all work on padding: the lengths of other batches are not known.

Shapes that change from batch to batch cost a compiler its graphs: pad to a few lengths.
"""

from __future__ import annotations

from gobrrr.analysis.claims import Found
from gobrrr.analysis.effects import of_claim
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Plan
from gobrrr.treatments.wording import said, where

NAME = "bucket-or-pack"
NUMERICS = "statistics"
CODE = """
window = sorted(window, key=len)
batches = [window[at : at + size] for at in range(0, len(window), size)]
random.shuffle(batches)  # each padded to its own longest
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """What the docstring says, of the finding's stake."""
    finding = found.finding
    if finding.code != "M11":
        return None
    told = "batches of sequences of about one length, each padded to its longest; or packed rows"
    how = said(told, where(finding))
    return of_claim(evidence, found, how, "high: no padding is left", least=0.0)
