"""Keep images with their channels innermost in memory.

Convolutions on tensor cores work on [N, H, W, C]. In `channels_last` the shapes stay as they are and only the strides
change: the converters around each convolution vanish, and batch norm reads whole rows.

Replayed: of layout copies (M05) what the finding claims, as far as they are between NCHW and NHWC, or a processor's
convolutions on NCHW; of normalization (M03) between nothing and the part of the finding's high end that batch norms
have whose channels lie outside. Of a convolution on a fallback algorithm (C06) from nothing to its high end, for that
layer alone, in the order that it does not have now.

An operation without such a kernel returns the usual order and brings the converters back. Grouped convolutions can be
slower.
"""

from __future__ import annotations

from gobrrr.analysis.claims import Found
from gobrrr.analysis.copies import reordered
from gobrrr.analysis.effects import of_claim
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Plan
from gobrrr.analysis.norms import outside_share
from gobrrr.model.diagnosis import Finding

NAME = "channels-last"
NUMERICS = "rounding"
HOW = "model.to(memory_format=torch.channels_last), and the images"
CODE = """
model = model.to(memory_format=torch.channels_last)
images = images.to(memory_format=torch.channels_last)
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """What the docstring says, of the finding's claim."""
    finding = found.finding
    if finding.code == "C06":
        assumes = "the other order has a better kernel"
        return of_claim(evidence, found, _other_order(finding), assumes, least=0.0, better=True)
    if finding.code == "M05":
        least, share = 1.0, reordered(evidence).image_share(evidence)
    elif finding.code == "M03":
        least, share = 0.0, outside_share(evidence)
    else:
        return None
    if share <= 0:
        return None
    return of_claim(
        evidence, found, HOW, "every operation between keeps the order", least=least * share, most=share, better=True
    )


def _other_order(finding: Finding) -> str:
    """The layer of a convolution's cliff in the order that it does not have now: which one is tried, not told."""
    module = finding.where[0].module if finding.where else None
    of = f"{module}, this layer alone" if module else "this layer alone"
    return f"the other memory format for {of}: torch.contiguous_format where it is channels_last, else channels_last"
