"""Each reproduction of bench/cases, sick and healthy, diagnosed live: is the fault named on the one, not on the other?

    python -m bench.live_cases [CASE ...]
    python -m bench.live_cases --held [CASE ...]

Every form runs in a process of its own, so that settings and compiled code of one don't reach the next. What the
fault's own findings promise stands beside what the fix really saves. Writes bench/results/live_cases.json. With
`--held` the sick forms alone are looked at, on one thread, for what holds their step: bench/results/live_held.json.
"""

from __future__ import annotations

import importlib
import json
import linecache
import os
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bench.cases
from bench import pages
from bench.process import answer

HELD, OUT = pages.RESULTS / "live_held.json", pages.RESULTS / "live_cases.json"
CAUSES = {
    "c01_item_branches": "def _asks|x.sum().item()",  # what is compiled is known by its function
    "c03_print_in_forward": "print(",
    "c05_recompile_storm": "compiled(next(batches))",
    "d01_slow_items": "next(batches)|yield from loader|time.sleep",
    "kv01_rows_again": "x = block(x, kept)|self.mixed(|self.back(|self.narrow(",
    "l01_small_recurrence": "torch.tanh(j @ r)",
    "l04_rnn_cell_loop": "model(x[t], (h, c))",
    "l05_optimizer_loop": "optimizer.step()",
    "l09_ema_loop": "average.mul_(0.999)",
    "l10_moe_expert_loop": "mine = chosen == e|out[mine] =",
    "l13_autocast_inference": "model(x)",
    "m01_unfused_rms_norm": "h = x * torch.rsqrt(|h * weight",
    "m03_rope_round_trips": "_rotated(|pairs = |turned = |return turned",
    "m04_norm_weight_casts": "self.weight.float()",
    "m08_int8_dequantised": "self.weight.float() * self.scale",
    "m10_cache_by_cat": "torch.cat([cache, new]",
    "m12_attention_weights": "need_weights=weights",
    "m15_naive_attention": "scores",
    "m17_dense_embedding_gradient": "optimizer.step()",
    "m18_duplicate_index_backward": "model.weight[ids]",
    "m21_strided_elementwise": "z.t() if turned",
    "n01_every_micro_batch": ".backward()",
    "n06_barrier_each_step": "dist.barrier()",
    "o12_log_each_step": "one.grad.norm()|logger.info(",
    "p06_float64": "x @ weight|y - target",
    "p09_contraction_order": "a @ b @ v",
    "p11_checkpointing": "checkpoint(block",
    "padding_waste": "model(ids)|cross_entropy(",
    "s14_timestep_table": "_table()|torch.outer(|torch.cat([angles|torch.exp(-9.2|torch.full(",
}
"""Of each case, parts of the lines of its fault, by hand. Where none is given the fault is a setting, at no line."""

FORMS = ("faulty", "fixed")


def names(device: str) -> Iterator[str]:
    """The modules of the cases that show on a device."""
    for info in pkgutil.iter_modules(bench.cases.__path__):
        module = importlib.import_module(f"bench.cases.{info.name}")
        if hasattr(module, "CASE") and device == module.RUNS_ON:
            yield info.name


def one_form(name: str, form: str, device: str) -> dict[str, Any]:
    """Diagnose one form here: its codes, its step and what the case's own code is said to be worth."""
    import gobrrr
    from gobrrr.report.held import held

    module = importlib.import_module(f"bench.cases.{name}")
    found = gobrrr.diagnose(lambda: getattr(module, form)(device))
    assert found.live is not None
    times = found.live.times
    watched = {module.CODE, *getattr(module, "TEMPTING", ())}
    promised = [
        [prescription.treatment, *prescription.predicted_saving_ns]
        for prescription in found.prescriptions
        if prescription.finding in watched or prescription.treatment in watched
    ]
    places = [where for finding in found.findings if finding.code == module.CODE for where in finding.where]
    return {
        "codes": [finding.code for finding in found.findings],
        "regime": found.regime,
        "wall_ms": times.wall_ns / 1e6,
        "low_ms": times.low_ns / 1e6,
        "high_ms": times.high_ns / 1e6,
        "promised_ns": promised,
        "held": [[place.where, place.what, round(place.share, 3), place.does] for place in held(found)],
        "source": places[0].source if places else None,
        "text": str(found),
    }


def what_holds(chosen: list[str], device: str) -> dict[str, Any]:
    """What holds the step of each sick form, the text of its line beside it."""
    rows = {}
    for name in (*names(device), *(names("ranks") if device == "cpu" else ())):
        module = importlib.import_module(f"bench.cases.{name}")
        if getattr(module, "NEGATIVE", False) or (chosen and module.CASE not in chosen):
            continue
        found = in_its_own_process(name, "faulty", device, OMP_NUM_THREADS="1")
        rows[name] = {"case": module.CASE, "error": found["error"]} if "error" in found else {
            "case": module.CASE,
            "what": (module.__doc__ or "").strip().splitlines()[0],
            "cause": CAUSES.get(name),
            "held": [[*place, _text(place[0])] for place in found["held"]],
            "codes": found["codes"],
            "wall_ms": found["wall_ms"],
        }  # fmt: skip
        print(name, rows[name].get("held", rows[name].get("error")), flush=True)
    return rows


def _text(where: str) -> str:
    """What stands at a line of a case, "file.py:12"; "" of another file."""
    file, _, line = where.partition(":")
    return linecache.getline(str(Path(bench.cases.__path__[0]) / file), int(line or 0)).strip()


def in_its_own_process(name: str, form: str, device: str, **environment: str) -> dict[str, Any]:
    return answer("bench.live_cases", "--one", name, form, device, environment=environment)


def main(chosen: list[str], device: str) -> None:
    rows = {}
    for name in (*names(device), *(names("ranks") if device == "cpu" else ())):
        module = importlib.import_module(f"bench.cases.{name}")
        if chosen and module.CASE not in chosen:
            continue
        row: dict[str, Any] = {
            "case": module.CASE,
            "code": module.CODE,
            "what": (module.__doc__ or "").strip().splitlines()[0],
            "negative": getattr(module, "NEGATIVE", False),
        }
        row |= {form: in_its_own_process(name, form, device) for form in FORMS}
        rows[name] = row
        codes = [form.get("codes", form.get("error")) for form in (row["faulty"], row["fixed"])]
        print(f"{module.CASE:8}{module.CODE:5}{codes[0]} | {codes[1]}", flush=True)
    _write(OUT if device == "cpu" else OUT.with_name("live_cases_h100.json"), rows, device, chosen)


def _write(out: Path, rows: dict[str, Any], device: str, chosen: list[str], how: str = "") -> None:
    """Write what was found, where all were asked for."""
    import torch

    from gobrrr.hardware.measure.device import find_device

    report = {
        "command": f"python -m bench.live_cases{how}", "device": find_device(device).environment().device_name,
        "torch": torch.__version__, "date": pages.now(), "rows": rows,
    }  # fmt: skip
    if not chosen:
        pages.write(out, report)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one_form(*sys.argv[2:5])), flush=True)
        os._exit(0)  # a peer may wait for this rank for ever
    else:
        wanted = [word for word in sys.argv[1:] if not word.startswith("--")]
        on = "cuda" if "--cuda" in sys.argv else "cpu"
        if "--held" in sys.argv:
            _write(HELD, what_holds(wanted, on), on, wanted, " --held")
        else:
            main(wanted, on)
