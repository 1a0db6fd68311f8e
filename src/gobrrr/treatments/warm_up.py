"""Run the step a few times before measuring or profiling it.

The first call of each kernel loads its module into the driver, the first matmul creates the library's handle and
workspace, and the first convolution of each shape tries out algorithms. Later steps do none of that.

Predicted: from nothing to all of the idle time under the loading, which later steps do not have. Only the recorded
steps differ: the program itself gets no faster.
"""

from __future__ import annotations

from gobrrr.treatments.framework.advice import advice

NAME = "warm-up"
NUMERICS = "none"
HOW = "schedule = torch.profiler.schedule(wait=1, warmup=3, active=3)  # run the step a few times before measuring"
CODE = """
schedule = torch.profiler.schedule(wait=1, warmup=3, active=3)
with torch.profiler.profile(schedule=schedule) as prof:
    for batch in batches:
        step(batch)
        prof.step()
"""


predict = advice("O05", lambda *_: HOW, "later steps load nothing; the program itself gets no faster", least=0.0)
