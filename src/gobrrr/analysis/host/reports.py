"""Which Python frames report: print, log, draw a progress bar, write a file."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.events.calls import HostCall, classify
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.scopes import frames
from gobrrr.analysis.host.host_kinds import to_another
from gobrrr.model.events import I8
from gobrrr.model.frame_names import FROM_LIBRARY

REPORTS = re.compile(
    rf"""
    ^<built-in\ function\ print>$
    | ^<built-in\ method\ (write|flush|writelines)\ of\ (_io\.)?(TextIOWrapper|BufferedWriter|FileIO|BufferedRandom)\b
    | {FROM_LIBRARY}logging/(__init__|handlers)\.py\(\d+\):\ (?!getEffectiveLevel|isEnabledFor|getLogger)
    | {FROM_LIBRARY}(tqdm|loguru|wandb|mlflow|tensorboardX?|neptune|comet_ml|clearml|aim|rich)/\S*\.py\(\d+\):
    | {FROM_LIBRARY}torch/utils/tensorboard/\S*\.py\(\d+\):
    | {FROM_LIBRARY}json/(__init__|encoder)\.py\(\d+\):\ (dump|dumps|encode|iterencode)$
    | {FROM_LIBRARY}csv\.py\(\d+\):\ write
    """,
    re.X,
)
"""Frames that report, as the profiler names them.

Reading a logger's level is no report: torch's backward pass does it each time.
"""

WATCHER = "gobrrr/observe/live/watcher.py"
IMPORT = "<frozen importlib._bootstrap>"
"""Frames of the watcher of a live run, and of an import; what happens within them is not the program's report."""

DRIVES = re.compile(
    rf"{FROM_LIBRARY}tqdm/\S*\.py\(\d+\): (__iter__|__next__)$|: decorate"
    rf"|{FROM_LIBRARY}rich/progress\.py\(\d+\): track$"
)
"""Frames that only pass the items of a loop on."""


def reporting(evidence: Evidence) -> I8:
    """Rows of the frames that report. Writing to another process through a pipe or a socket is no report."""
    streams = evidence.profile.seen.streams if evidence.profile.seen is not None else {}

    def reports(name: str) -> bool:
        return REPORTS.search(name) is not None and DRIVES.search(name) is None and not to_another(name, streams)

    return _of_the_program(evidence, frames(evidence, reports))


def _of_the_program(evidence: Evidence, rows: I8) -> I8:
    """`rows` without those within a compiler, an import, or the watcher of a live run."""
    events = evidence.replayed
    excluded = classify(events.names) == HostCall.COMPILE
    excluded |= np.array([WATCHER in name or IMPORT in name for name in events.names], dtype=bool)
    return outside_of(evidence, rows, excluded[events.name])


def outside_of(evidence: Evidence, rows: I8, around: NDArray[np.bool_]) -> I8:
    """Those of `rows` that no event of `around` (a flag per row) encloses."""
    parent = evidence.host_parents
    if parent is None:
        return rows
    kept = []
    for row in rows.tolist():
        above = int(parent[row])
        while above >= 0 and not around[above]:
            above = int(parent[above])
        if above < 0:
            kept.append(row)
    return np.array(kept, dtype=np.int64)
