"""The device work of a step by kernel name, as a vendor's profiler lists it."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.answer.summary import MOST_TABLE_ROWS, in_steps
from gobrrr.analysis.events.steps import StepWindow
from gobrrr.analysis.pricing.price import Priced
from gobrrr.model.diagnosis import KernelRow
from gobrrr.model.events import EventTable


def kernel_rows(
    events: EventTable, priced: Priced, steps: StepWindow, op_of_group: NDArray[np.int64]
) -> list[KernelRow]:
    """The kernels, copies and memsets of a step by name, most device time first; at most `MOST_ROWS`.

    `op_of_group`: index of each group in the table of calls, or -1.
    """
    inside = in_steps(events, priced.links, steps)
    rows = priced.links.device[inside]
    ops = op_of_group[priced.group[inside]]
    names, kernel = np.unique(events.name[rows], return_inverse=True)
    kernel = np.asarray(kernel).reshape(-1)
    ns = np.bincount(kernel, weights=events.duration_ns[rows], minlength=len(names))
    calls = np.bincount(kernel, minlength=len(names))
    launched: dict[int, list[int]] = defaultdict(list)
    for index, op in np.unique(np.column_stack([kernel, ops])[ops >= 0], axis=0).tolist():
        launched[index].append(op)
    return [
        KernelRow(
            name=events.names[int(names[index])],
            calls=float(calls[index]) / steps.count,
            ns=float(ns[index]) / steps.count,
            ops=launched[index],
        )
        for index in np.argsort(-ns, kind="stable")[:MOST_TABLE_ROWS].tolist()
    ]
