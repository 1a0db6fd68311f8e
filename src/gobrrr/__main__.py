"""`python -m gobrrr` is the same as `gobrrr`."""

from __future__ import annotations

import sys

from gobrrr.cli import main

if __name__ == "__main__":
    sys.exit(main())
