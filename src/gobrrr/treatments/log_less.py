"""Report every N steps, and add up in between.

A sum that stays on the device costs one small kernel; a line, a bar or a file entry is made from it every N steps.

Replayed: what the finding claims, from its low to its high end: half of the time without waits at the low end, all of
it at the high end, which many steps between two reports come close to.
"""

from __future__ import annotations

from gobrrr.analysis.claims import Found
from gobrrr.analysis.effects import of_claim
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Plan
from gobrrr.treatments.wording import said, where

NAME = "log-less"
NUMERICS = "none"
CODE = """
total += loss.detach()  # on the device
if number % 100 == 0:
    logger.info("loss %s", total.item() / 100)
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """What the docstring says, of the finding's stake."""
    finding = found.finding
    if finding.code != "O12":
        return None
    how = said("report every 100 steps, and add up on the device in between", where(finding))
    return of_claim(evidence, found, how, "low: every second step reports")
