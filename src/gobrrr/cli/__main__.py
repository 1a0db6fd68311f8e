"""`python -m gobrrr.cli`."""

import sys

from gobrrr.cli import main

sys.exit(main())
