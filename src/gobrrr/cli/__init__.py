"""The command line: each function parses, makes one library call and prints with one renderer."""

from __future__ import annotations

# when it began, then the commands in the order in which the help lists them
from gobrrr.cli import begun, diagnosing, envelopes, explaining, machines, predicting, treating  # noqa: F401
from gobrrr.cli.diagnosing import DEMO
from gobrrr.cli.entry import INTERRUPTED, main
from gobrrr.cli.options import app
from gobrrr.report import output

__all__ = ["DEMO", "INTERRUPTED", "app", "main", "output"]
