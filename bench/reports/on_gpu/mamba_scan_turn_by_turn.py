"""A selective scan as a loop over time: linear in its state, so that two cumulative sums give all of it."""

import torch

from bench.reports.on_gpu import DEVICE, sized
from gobrrr import Workload

SOURCE = "https://github.com/johnma2006/mamba-minimal/issues/18"
MECHANISM = 5
CAUSE = "a loop over time on the host, of a few small operations a turn"
REPORTED = "14 times faster by two cumulative sums, on an A30"
NAMES = r"\bloop|\bturns?\b|\bscan\b"
BATCH, LENGTH, WIDTH, STATE = sized(2, 1), sized(256, 32), sized(512, 16), sized(16, 4)


def made(*, sick: bool) -> Workload:
    torch.manual_seed(0)
    rate = torch.nn.Parameter(torch.rand(WIDTH, STATE, device=DEVICE) * 0.02)
    u, delta = torch.randn(BATCH, LENGTH, WIDTH, device=DEVICE), torch.rand(BATCH, LENGTH, WIDTH, device=DEVICE)
    into, out = (torch.randn(BATCH, LENGTH, STATE, device=DEVICE) for _ in range(2))

    def scanned() -> torch.Tensor:
        logs = -torch.einsum("bld,dn->bldn", delta, rate)
        entering = torch.einsum("bld,bln->bldn", delta * u, into)
        if not sick:
            total = logs.cumsum(dim=1)
            states = (entering * torch.exp(-total)).cumsum(dim=1) * torch.exp(total)
            return torch.einsum("bldn,bln->bld", states, out)
        kept, state, outputs = logs.exp(), torch.zeros(BATCH, WIDTH, STATE, device=DEVICE), []
        for at in range(LENGTH):
            state = kept[:, at] * state + entering[:, at]  # cause
            outputs.append(torch.einsum("bdn,bn->bd", state, out[:, at]))  # cause
        return torch.stack(outputs, dim=1)

    def step() -> torch.Tensor:
        loss = scanned().square().mean()
        loss.backward()
        rate.grad = None
        return loss.detach()

    return Workload(step=step, name="a selective scan")
