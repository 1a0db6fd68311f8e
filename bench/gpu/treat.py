"""gobrrr.treat held against experts: what it keeps in its first trials, and the best of the recipes, timed in turns.

    python -m bench.gpu.treat OUT --seconds 540                       # as far as the time reaches
    python -m bench.gpu.treat OUT --seconds 540 --only a,b --anew b   # b anew, what it gave at first stays beside
    python -m bench.gpu.treat OUT --device cpu --tiny --only a        # tries the script
    python -m bench.gpu.treat --list                                  # what there is
    python -m bench.gpu.treat --take OUT                              # what came back into bench/results

Goes on where bench/results (or OUT, where it has the file) stops. Writes OUT/treat_h200.json, named by the device,
after each workload, and OUT/treat.log with what its processes printed. Several workloads are under way at once and one
at a time has the device (bench/gpu/runs.py): the clock of each stands still while it waits. Treating has its
default budget and is ended after --trials, for what it is to be good at is to need few. What is timed, and against
which recipes, is in bench/gpu/treat_one.py; bench/treat_table.py makes the page.
"""

from __future__ import annotations

import sys
from typing import Any

from bench.gpu import runs
from bench.gpu.treatment_workloads import KNOWN

CHOSEN = (
    "gpt_script", "convnext_timm", "columns_train", "gpt_train", "conv_resnet50_train_amp", "vit_base_train_amp",
    "bert_serve", "t5_short_train_amp", "unet_train", "lstm_train", "decode_one", "tabular_train", "sage_train",
    "ppo_train", "wavenet_serve_one", "photographs_train_amp", "moe_dense_train",
)  # fmt: skip
"""Three as people write them and one of each family of the bench of treatments; none of those that are set aside."""

FIRST = ("treat", "against")
"""What stays of a workload that is measured anew."""


def line(name: str, found: dict[str, Any]) -> str:
    """A workload in one line."""
    if "error" in found:
        return f"{name:26} FAILED: {found['error']}"
    if "treat" not in found or "against" not in found:
        return f"{name:26} not finished"
    treated, timed = found["treat"], found["against"]
    times = [timed.get(key) for key in ("untreated_ns", "treat_ns", "best_ns")]
    shown = " ".join("     ?" if it is None else f"{it / 1e6:6.2f}" for it in times)
    ratio = times[2] / times[1] if times[1] and times[2] else float("nan")
    return (
        f"{name:26} {shown} ms, best / treat {ratio:.3f}, {len(treated['trials'])} trials, {treated['seconds']:.0f} s "
        f"of which {treated['compiling_s']:.0f} s compiling; kept {', '.join(treated['kept']) or 'nothing'}; "
        f"best {timed.get('best') or 'nothing'}"
    )


def begun_anew(found: dict[str, Any]) -> dict[str, Any]:
    """A workload that is to be measured again, with what it gave when the code saw it for the first time."""
    first = found.get("first_sight") or {key: found[key] for key in (*FIRST, "commit", "date") if key in found}
    about = {key: value for key, value in found.items() if key not in (*FIRST, "rows", "unfit", "device_seconds")}
    return {**about, "first_sight": first, "left": ["what it gives now"]}


BENCH = runs.Bench(kind="treat", module="bench.gpu.treat_one", told=line, each_s=150.0, least_s=110.0, profiles=False)
"""What is cut short is lost, so that no workload is begun with little time left."""


def main() -> int:
    parser = runs.parser(__doc__, BENCH)
    parser.add_argument("--anew", default="", help="names of measured ones to measure again, separated by commas")
    parser.add_argument("--trials", type=int, default=3, help="end treating after so many trials; 0: never (3)")
    asked = runs.asked_of(parser, BENCH, KNOWN, "only", "anew")
    if asked.list:
        print("\n".join(f"{name:26} {KNOWN[name].what}" for name in CHOSEN))
        return 0
    if asked.take:
        return runs.take(asked.out, BENCH.kind)
    run = runs.Run(BENCH, asked, ("--trials", str(asked.trials)))
    known = runs.begin(run)
    for name in set(asked.anew) & set(known):
        known[name] = begun_anew(known[name])
    runs.measure(run, asked.only or list(CHOSEN))
    return 0


if __name__ == "__main__":
    sys.exit(main())
