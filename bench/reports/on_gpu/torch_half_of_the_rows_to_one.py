"""index_add_ where half of all rows belong to one place: the additions wait for each other."""

import torch

from bench.reports.on_gpu import DEVICE, sized
from gobrrr import Workload

SOURCE = "https://github.com/pytorch/pytorch/pull/182675"
MECHANISM = 2
CAUSE = "index_add_ with half of its indices at one row"
REPORTED = "18 times on a GB200, for 7.8 million indices of which 3.9 million are one"
NAMES = r"index_add|scatter|atomic|\brepeated ind|duplicate|contend|contention"
EDGES, NODES, WIDTH, COPIES = sized(2_000_000, 4000), sized(400_000, 500), sized(64, 8), 1024


def made(*, sick: bool) -> Workload:
    torch.manual_seed(0)
    messages = torch.randn(EDGES, WIDTH, device=DEVICE)
    target = torch.randint(1, NODES, (EDGES,), device=DEVICE)
    target[::2] = 0
    spread = torch.where(target == 0, NODES + torch.arange(EDGES, device=DEVICE) % COPIES, target)
    update = torch.nn.Linear(WIDTH, WIDTH, device=DEVICE)

    def summed() -> torch.Tensor:
        if sick:
            return messages.new_zeros(NODES, WIDTH).index_add_(0, target, messages)  # cause
        wide = messages.new_zeros(NODES + COPIES, WIDTH).index_add_(0, spread, messages)
        wide[0] = wide[NODES:].sum(0)
        return wide[:NODES]

    def step() -> torch.Tensor:
        with torch.no_grad():
            return update(summed()).relu().mean()

    return Workload(model=update, step=step, name="a graph layer")
