"""The command line: each function parses, makes one library call and prints with one renderer."""

from __future__ import annotations

# `begun` first: it records the start of the process. Then the commands, in the order of the help.
from gobrrr.cli import begun, diagnosing, envelopes, explaining, machines, predicting, treating  # noqa: F401
from gobrrr.cli.diagnosing import DEMO
from gobrrr.cli.entry import INTERRUPTED, main
from gobrrr.cli.options import app
from gobrrr.report import output

__all__ = ["DEMO", "INTERRUPTED", "app", "main", "output"]
