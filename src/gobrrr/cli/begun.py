"""When this process began, as far as it can tell: imported before all else of the command line, which takes a while."""

from __future__ import annotations

import time

BEGUN = time.monotonic()
