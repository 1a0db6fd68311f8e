"""Hand-made diagnoses that look like real ones: one a regime, one of everything unknown, one hostile, one too long."""

from __future__ import annotations

from typing import Any

from gobrrr.model.diagnosis import (
    BudgetLine,
    Coverage,
    DeviceTotals,
    Diagnosis,
    Finding,
    NotChecked,
    Place,
    Prescription,
    Totals,
    Trial,
    Wall,
)

MS = 1e6
H100 = "NVIDIA H100 80GB HBM3"


def budget(wall_ms: float, **parts_ms: float) -> list[BudgetLine]:
    """Lines from keywords such as `compute=3.1` or `overhead__launching=12`; their sum must be the wall."""
    assert abs(sum(parts_ms.values()) - wall_ms) < 1e-6, sum(parts_ms.values())
    return [
        BudgetLine(line=key.partition("__")[0], cause=key.partition("__")[2] or None, ns=ms * MS, share=ms / wall_ms)
        for key, ms in parts_ms.items()
    ]


def wall(value: float, low: float, high: float, how: str = "estimated") -> Wall:
    return Wall(value=value * MS, low=low * MS, high=high * MS, how=how)


def diagnosis(**changes: Any) -> Diagnosis:
    """A small overhead-bound step, with `changes`."""
    fields: dict[str, Any] = {
        "target": "runs/2024-05-01/train_step.json.gz",
        "origin": "trace",
        "device": H100,
        "machine": "H100-SXM",
        "ranks": 1,
        "steps": 3,
        "steps_from": "3 ProfilerStep annotations",
        "wall_ns": 49.2 * MS,
        "unprofiled_wall_ns": wall(31.0, 27.9, 34.1),
        "devices": [DeviceTotals(rank=0, device=0, busy_total_ns=36_000_000, span_total_ns=147_600_000, kernels=5544)],
        "regime": "overhead",
        "certainty": "high",
        "budget": budget(
            31.0,
            compute=3.1,
            memory=5.4,
            below_roof__memory=2.2,
            below_roof__compute=0.8,
            unpriced=0.4,
            transfer=0.06,
            overhead__launching=14.2,
            overhead__python=3.0,
            overhead__draining=1.7,
            overhead__allocator=0.05,
            overhead__garbage_collection=0.03,
            overhead__unexplained=0.06,
        ),
        "speed_of_light_ns": 4.3 * MS,
        "coverage": Coverage(device_time=0.967, calls=0.99, bytes=0.98),
        "totals": Totals(flop=2.1e12, bytes_as_run=1.8e10, bytes_fused=7.2e9, launches=1848, syncs=3),
        "findings": [
            Finding(
                code="O01",
                title="launch-bound: 1,848 launches, median kernel 4 us",
                where=[
                    Place(op="aten::addmm", module="Block.forward", source="/srv/me/project/model.py:38", count=288)
                ],
                at_stake_ns=(9 * MS, 15 * MS),
                certainty="high",
                treatments=["cuda_graph", "compile"],
            ),
            Finding(
                code="M01",
                title="unfused pointwise chain of 5 ops: 1.21 GB moved where 0.24 GB would do",
                where=[Place(op="aten::mul", module="Block.forward", source="model.py:41", count=12)]
                + [
                    Place(op="aten::add", module="Head.forward", source=f"model.py:{n}", count=1) for n in range(60, 64)
                ],
                at_stake_ns=(1.1 * MS, 2.4 * MS),
                certainty="medium",
                treatments=["compile"],
            ),
            Finding(
                code="O04",
                title="a sync in the step: aten::item waits for the device",
                where=[Place(op="aten::item", source="train.py:112", count=1)],
                at_stake_ns=(0.1 * MS, 1.7 * MS),
                certainty="high",
                treatments=["defer_sync"],
            ),
            Finding(
                code="M07",
                title="fp32 logits are written and read again by the loss",
                where=[Place(op="aten::_log_softmax", module="Loss.forward", count=1)],
                at_stake_ns=(0.2 * MS, 0.3 * MS),
                certainty="low",
                treatments=[],
            ),
        ],
        "not_checked": [
            NotChecked(code="O07", needs="a live run"),
            NotChecked(code="O09", needs="a live run"),
            NotChecked(code="N01", needs="traces of every rank"),
            NotChecked(code="C05", needs="hardware counters"),
        ],
        "prescriptions": [
            Prescription(
                treatment="cuda_graph",
                finding="O01",
                predicted_saving_ns=(14.1 * MS, 18.6 * MS),
                how='import torch\n\nstep = torch.compile(step, mode="reduce-overhead")',
                assumes="static shapes",
            ),
            Prescription(
                treatment="compile",
                finding="M01",
                predicted_saving_ns=(0.9 * MS, 2.1 * MS),
                how="model = torch.compile(model)",
                assumes="no graph breaks",
            ),
            Prescription(
                treatment="defer_sync",
                finding="O04",
                predicted_saving_ns=(0, 0.4 * MS),
                how="total += loss.detach()  # read it every 100 steps",
            ),
        ],
        "notes": ["the trace was recorded with shapes but without stacks: source lines come from modules only"],
        "evidence": ["the device was idle in 68 % of the step under the profiler; about 65 % without it"],
        "version": "0.1.0",
    }
    fields.update(changes)
    return Diagnosis(**fields)


def overhead() -> Diagnosis:
    return diagnosis()


def memory() -> Diagnosis:
    return diagnosis(
        target="pointwise_chain.faulty.json.gz",
        regime="memory",
        wall_ns=9.31 * MS,
        unprofiled_wall_ns=wall(9.2, 9.18, 9.24),
        budget=budget(9.2, memory=8.1, below_roof__memory=0.95, overhead__launching=0.15),
        speed_of_light_ns=2.0 * MS,
        findings=[
            Finding(
                code="M01",
                title="unfused pointwise chain of 8 ops: 24.1 GB moved where 2.1 GB would do",
                where=[Place(op="aten::gelu", count=8, ns=8e6)],
                at_stake_ns=(6.0 * MS, 7.1 * MS),
                certainty="high",
                treatments=["compile"],
            )
        ],
        prescriptions=[
            Prescription(
                treatment="compile", finding="M01", predicted_saving_ns=(6.0 * MS, 7.1 * MS), how="f = torch.compile(f)"
            )
        ],
        coverage=Coverage(device_time=1.0, calls=1.0, bytes=1.0),
        notes=[],
        evidence=[],
    )


def compute() -> Diagnosis:
    return diagnosis(
        target="gpt_fp32_notf32.faulty.json.gz",
        regime="compute",
        wall_ns=162.1 * MS,
        unprofiled_wall_ns=wall(160.5, 158.0, 163.0, "measured"),
        budget=budget(
            160.5, compute=96.4, memory=21.0, below_roof__compute=31.2, below_roof__memory=8.4, overhead__launching=3.5
        ),
        findings=[
            Finding(
                code="C01",
                title="fp32 matmuls off the tensor cores: 61.2 TFLOP/s of 67, where TF32 has 495",
                where=[Place(op="aten::addmm", module="MLP.forward", source="gpt.py:77", count=72)],
                at_stake_ns=(90 * MS, 118 * MS),
                certainty="high",
                treatments=["tf32", "autocast"],
            )
        ],
        prescriptions=[
            Prescription(
                treatment="autocast",
                finding="C01",
                predicted_saving_ns=(95 * MS, 122 * MS),
                how='with torch.autocast("cuda", torch.bfloat16):\n    loss = model(x)',
            ),
            Prescription(
                treatment="tf32",
                finding="C01",
                predicted_saving_ns=(80 * MS, 105 * MS),
                how='torch.set_float32_matmul_precision("high")',
            ),
        ],
        trials=[
            Trial(
                treatment="tf32",
                before_ns=160.5 * MS,
                after_ns=66.2 * MS,
                spread_ns=0.4 * MS,
                predicted_saving_ns=(80 * MS, 105 * MS),
                numerics={},
                verdict="helped",
            )
        ],
        speed_of_light_ns=13.3 * MS,
        notes=[],
        evidence=[],
    )


def communication() -> Diagnosis:
    devices = [
        DeviceTotals(rank=n, device=n, busy_total_ns=95_000_000 + n, span_total_ns=100_000_000, kernels=900)
        for n in range(8)
    ]
    return diagnosis(
        target="runs/ddp",
        regime="communication",
        certainty="medium",
        ranks=8,
        devices=devices,
        findings=[],
        prescriptions=[],
        budget=budget(31.0, compute=9.0, memory=3.0, communication=17.0, overhead__launching=2.0),
        evidence=[
            "rank 3 arrives last at 94 % of the collectives",
            "bus bandwidth is 41 % of what this size reaches elsewhere",
        ],
    )


def waiting_for_input() -> Diagnosis:
    return diagnosis(
        target="resnet_slow_loader.faulty.json.gz",
        regime="input",
        findings=[],
        prescriptions=[],
        not_checked=[],
        budget=budget(31.0, compute=4.0, memory=3.0, overhead__input=20.5, overhead__launching=2.0, transfer=1.5),
    )


def mixed() -> Diagnosis:
    return diagnosis(
        regime="mixed",
        certainty="low",
        budget=budget(31.0, compute=2.0, memory=9.0, below_roof__memory=4.0, overhead__launching=11.0, unpriced=5.0),
        evidence=["the host runs ahead of the device for 40 % of the step, which speaks against overhead"],
        speed_of_light_ns=None,
        coverage=Coverage(device_time=0.84, calls=0.9, bytes=None),
    )


def unknown() -> Diagnosis:
    """A trace of kernels whose work is unknown, on a device that no datasheet row matches."""
    return diagnosis(
        regime="unknown",
        certainty="low",
        device=None,
        machine=None,
        findings=[],
        prescriptions=[],
        budget=budget(31.0, unpriced=20.0, overhead__unexplained=11.0),
        speed_of_light_ns=None,
        coverage=Coverage(device_time=0.0, calls=0.0, bytes=None),
        unprofiled_wall_ns=wall(31.0, 20.0, 49.2),
        notes=["no shapes were recorded, so no work can be counted: record with record_shapes=True"],
    )


def nothing() -> Diagnosis:
    """Everything that may be None or empty is."""
    return diagnosis(
        regime="unknown",
        certainty="low",
        device=None,
        machine=None,
        wall_ns=None,
        steps=1,
        steps_from="",
        unprofiled_wall_ns=Wall(value=None, low=None, high=None, how="unknown"),
        devices=[],
        budget=[],
        speed_of_light_ns=None,
        coverage=Coverage(device_time=None, calls=None, bytes=None),
        totals=Totals(flop=None, bytes_as_run=None, bytes_fused=None, launches=None, syncs=None),
        findings=[],
        prescriptions=[],
        not_checked=[],
        notes=[],
        evidence=[],
    )


HOSTILE = "\x1b[31mred\x1b[0m [red]x[/red] \u202eevil\u202c \ud800 \x07\x00 a\nb\tc \x9b2J \u2028 " + "long" * 400


def hostile() -> Diagnosis:
    """Every string that comes from a trace is hostile."""
    place = Place(op=f"void at::native::k<{HOSTILE}", module=HOSTILE, source=HOSTILE, shapes=HOSTILE, count=3, ns=1.0)
    return diagnosis(
        target=f"/tmp/{HOSTILE}",
        device=HOSTILE,
        notes=[HOSTILE] * 9,
        evidence=[HOSTILE] * 9,
        budget=[BudgetLine(line="overhead", cause=HOSTILE, ns=31 * MS, share=1.0)],
        findings=[
            Finding(
                code=HOSTILE[:40], title=HOSTILE, where=[place] * 3, at_stake_ns=(1, 2), certainty="low", treatments=[]
            )
        ]
        * 2,
        prescriptions=[
            Prescription(treatment=HOSTILE[:40], finding=HOSTILE[:40], predicted_saving_ns=(1, 2), how=HOSTILE)
        ],
        not_checked=[NotChecked(code=HOSTILE[:30], needs=HOSTILE)],
        trials=[
            Trial(
                treatment=HOSTILE,
                before_ns=2,
                after_ns=1,
                spread_ns=0,
                predicted_saving_ns=(0, 1),
                numerics={},
                verdict="hurt",
            )
        ],
    )


def crowded() -> Diagnosis:
    """More of everything than a screen holds."""
    base = diagnosis()
    findings = [
        Finding(
            code=f"M{n:02}",
            title=f"finding {n}: " + "a long title that goes on " * 4,
            where=[Place(op="aten::add", count=2)] * n,
            at_stake_ns=(MS, 2 * MS),
            certainty="low",
            treatments=["compile"],
        )
        for n in range(1, 20)
    ]
    prescriptions = [
        Prescription(treatment="compile", finding=one.code, predicted_saving_ns=(0, MS), how="a = 1\nb = 2\nc = 3")
        for one in findings[:10]
    ]
    return diagnosis(
        findings=findings,
        prescriptions=prescriptions,
        notes=["a note that is long enough for lines " * 6] * 12,
        evidence=["evidence that is rather long and goes over the end of the line, twice over at eighty"] * 6,
        devices=[DeviceTotals(rank=n, device=n, busy_total_ns=1, span_total_ns=2, kernels=3) for n in range(16)],
        trials=[
            Trial(
                treatment="compile",
                before_ns=2 * MS,
                after_ns=MS,
                spread_ns=1,
                predicted_saving_ns=(0, MS),
                numerics={},
                verdict="no_change",
            )
        ]
        * 6,
        not_checked=[NotChecked(code=f"Q{n:02}", needs=f"thing number {n}") for n in range(30)],
        budget=base.budget,
    )


ALL = {
    make.__name__: make
    for make in (overhead, memory, compute, communication, waiting_for_input, mixed, unknown, nothing, hostile, crowded)
}
