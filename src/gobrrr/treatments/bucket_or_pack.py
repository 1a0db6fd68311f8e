"""Put sequences of about one length into a batch, or several into one row.

Sort within a window of the shuffled data, cut it into batches, shuffle the batches, and pad each to its own longest
sequence (in Transformers `group_by_length=True` and a collator that pads dynamically). Or pack: rows full of sequences,
with attention and positions that keep them apart. Packing changes how many sequences a step sees.

Replayed: of the finding, between nothing and all work on padding: the lengths of other batches are not known.

Shapes that change from batch to batch cost a compiler its graphs: pad to a few lengths.
"""

from __future__ import annotations

from gobrrr.treatments.framework.advice import advice

NAME = "bucket-or-pack"
NUMERICS = "statistics"
CODE = """
window = sorted(window, key=len)
batches = [window[at : at + size] for at in range(0, len(window), size)]
random.shuffle(batches)  # each padded to its own longest
"""


predict = advice(
    "M11",
    "batches of sequences of about one length, each padded to its longest; or packed rows",
    "high: no padding is left",
    least=0.0,
)
