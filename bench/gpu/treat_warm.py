"""Compile one workload's model as `gobrrr.treat` may, so that the compiler's cache on disk has it.

    python -m bench.gpu.treat_warm NAME        (bench.gpu.treat --warm starts several side by side, before any timing)

A host on which compiling takes half a minute otherwise spends its time on that. Nothing is timed here.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time

import torch

from bench.gpu.treat_exhaustive import fitting
from bench.gpu.treat_form import KNOWN
from bench.gpu.treat_one import SOURCES as SOURCES
from gobrrr.treating.arms import Arm

STEPS = 3
FORMS = (("compile",), ("compile:reduce-overhead",), ("tf32", "bf16-autocast", "compile"), ("bf16-cast", "compile"))
"""What is compiled, of what fits."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(KNOWN))
    given = parser.parse_args()
    workload = KNOWN[given.name].make()
    ways, _ = fitting(workload)
    for form in FORMS:
        if not all(one in ways for one in form):
            continue
        begin = time.monotonic()
        arm = Arm(workload, [ways[one] for one in form])
        try:
            with arm.entered() as entered:
                for _ in range(STEPS):
                    entered.call()
        except Exception as error:  # what can't be compiled is found out by the trial
            print(f"{' + '.join(form)}: {type(error).__name__}", flush=True)
        arm.close()
        torch._dynamo.reset()
        gc.collect()
        print(f"{given.name} {' + '.join(form)}: {time.monotonic() - begin:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
