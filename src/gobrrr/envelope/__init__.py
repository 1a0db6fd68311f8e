"""The back of the envelope: an expression or an op on a machine, counted by the same rules as a trace.

`calculate` is the door; `article` and `generations` are the article's own arithmetic and the ratio over the years.
"""

from __future__ import annotations

from gobrrr.envelope.article import article, claims
from gobrrr.envelope.calculate import calculate, machine_of
from gobrrr.envelope.generations import generations
from gobrrr.envelope.problems import read_shapes, read_sizes
from gobrrr.envelope.tables import article_machine

TABLES = {"article": article, "generations": generations}
"""What `gobrrr calc` shows without a machine."""

__all__ = [
    "TABLES",
    "article",
    "article_machine",
    "calculate",
    "claims",
    "generations",
    "machine_of",
    "read_shapes",
    "read_sizes",
]
