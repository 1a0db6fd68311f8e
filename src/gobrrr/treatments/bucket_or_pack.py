"""Batch sequences of similar length, or pack several into one row.

Bucketing: sort within a window of the shuffled data, cut it into batches, shuffle the batches, and pad each batch to
its own longest sequence (in Transformers: `group_by_length=True` and a collator that pads dynamically). Packing: fill
each row with several sequences, and keep them apart by attention mask and positions. Packing changes how many sequences
a step sees.

Predicted: from nothing to all of the work on padding, because the lengths in other batches are not known.

Shapes that change from batch to batch make a compiler compile again: pad to a few fixed lengths.
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
