"""What-ifs made by hand for a diagnosis: treatments and machines, some combinations of them missing."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from gobrrr.model.diagnosis import BudgetLine, Diagnosis, MovedOp, Prescription, WhatIf

OTHER, SLOW = "B200-SXM-180GB", "A100-80GB-SXM4"
FACTORS = {None: 1.0, OTHER: 0.5, SLOW: 1.7}
PARTS = {
    "compile": {"memory": 0.4, "below_roof": 0.6, "overhead": 0.7},
    "cuda-graph": {"overhead": 0.1},
    "larger-batch": {"overhead": 0.25},
    "pad-dimensions": {"compute": 1.2, "memory": 1.05},
}
"""What each leaves of a line of the budget."""
OFFERED: list[tuple[list[str], str | None]] = [
    ([], None), (["compile"], None), (["cuda-graph"], None), (["larger-batch"], None), (["pad-dimensions"], None),
    (["compile", "cuda-graph"], None), (["compile", "cuda-graph", "larger-batch"], None),
    ([], OTHER), (["compile"], OTHER), (["compile", "cuda-graph"], OTHER), ([], SLOW), (["compile"], SLOW),
]  # fmt: skip


def with_what_ifs(one: Diagnosis, offered: list[tuple[list[str], str | None]] = OFFERED) -> Diagnosis:
    """The diagnosis with an entry for each combination that is offered, and roofs for the other machines."""
    step = one.unprofiled_wall_ns.value or one.wall_ns or 1e6
    entries = [entry(one, step, names, machine) for names, machine in offered]
    machines = {machine for _, machine in offered if machine is not None}
    roofs = {name: [replace(roof, value=roof.value / FACTORS[name]) for roof in one.roofs] for name in machines}
    told = {item.treatment for item in one.prescriptions}
    more = [
        Prescription(treatment=name, finding="O01", predicted_saving_ns=(0, 1), how=f"import torch\n{name}(step)")
        for name in PARTS
        if name not in told
    ]
    return replace(one, what_ifs=entries, what_if_roofs=roofs, prescriptions=[*one.prescriptions, *more])


def entry(one: Diagnosis, step: float, names: list[str], machine: str | None, **changes: Any) -> WhatIf:
    """The step with each line of the budget shortened as `PARTS` and `FACTORS` say."""
    lines = []
    for line in one.budget:
        ns = line.ns
        for name in names:
            ns *= PARTS.get(name, {}).get(line.line, 1.0)
        ns *= 1.0 if line.line == "overhead" else FACTORS.get(machine, 1.0)
        lines.append(ns)
    after = sum(lines)
    budget = [
        BudgetLine(line=line.line, cause=line.cause, ns=ns, share=ns / after if after else 0.0)
        for line, ns in zip(one.budget, lines, strict=True)
    ]
    largest = max(budget, key=lambda line: line.ns).line if budget else "unknown"
    fields: dict[str, Any] = {
        "treatments": names, "machine": machine, "step_ns": after, "low_ns": 0.88 * after, "high_ns": 1.13 * after,
        "expected_ns": step - after, "saving_ns": (step - 1.13 * after, step - 0.88 * after),
        "regime": largest if largest in ("compute", "memory", "overhead") else "mixed", "lines": budget,
        "then": f"then most of the step is {largest} (63%)" if names or machine else f"most of it is {largest}",
        "assumes": [f"what {name} needs; no graph breaks" for name in names],
        "ops": moved(one, names, FACTORS.get(machine, 1.0)), "work": 4.0 if "larger-batch" in names else 1.0,
    }  # fmt: skip
    return WhatIf(**{**fields, **changes})


def moved(one: Diagnosis, names: list[str], factor: float) -> list[MovedOp]:
    """With compile every third memory-bound call is part of another kernel, and the one after it moves fewer bytes."""
    found = []
    times = 4.0 if "larger-batch" in names else 1.0
    for index, row in enumerate(one.ops):
        share = {0: 0.0, 1: 0.5}.get(index % 3, 1.0) if "compile" in names and row.bound == "memory" else 1.0
        if share * factor * times != 1.0:
            ns = row.ns * share * factor * times
            bytes_ = row.bytes * min(share or 1.0, 1.0) if row.bytes is not None else None
            found.append(MovedOp(op=index, ns=ns, floor_ns=row.floor_ns, bytes=bytes_))
    return found
