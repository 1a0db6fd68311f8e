"""Report every N steps, and add up in between.

A sum that stays on the device costs one small kernel; make a line, a progress bar or a file entry from it every N
steps.

Predicted: what the finding claims: half of the time without waits at the low end, all of it at the high end, which many
steps between two reports approach.
"""

from __future__ import annotations

from gobrrr.treatments.framework.advice import advice

NAME = "log-less"
NUMERICS = "none"
CODE = """
total += loss.detach()  # on the device
if number % 100 == 0:
    logger.info("loss %s", total.item() / 100)
"""


predict = advice("O12", "report every 100 steps, and add up on the device in between", "low: every second step reports")
