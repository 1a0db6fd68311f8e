"""When this process began. The command line imports this first: its other imports take a while."""

from __future__ import annotations

import time

BEGUN = time.monotonic()
"""Seconds on the monotonic clock."""
