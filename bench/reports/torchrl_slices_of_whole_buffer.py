"""A sampler of slices that finds the ends of all trajectories anew for each batch."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/pytorch/rl/issues/2669"
MECHANISM = 3
CAUSE = "the ends of the trajectories are searched in the whole buffer for each sample, although nothing was added"
REPORTED = "4.8 ms a sample with 5 million transitions, 1.65 s with 346 million"
NAMES = r"\bagain\b|same (?:work|data|values|result)|unchanged|positions of a mask|nonzero"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    size, length = 400_000, 4
    states = torch.randn(size, 8, device=device)
    done = torch.rand(size, device=device) < 0.01
    critic = torch.nn.Linear(8, 1).to(device)

    def searched() -> tuple[torch.Tensor, torch.Tensor]:
        ends = torch.nonzero(done).squeeze(1)  # cause
        starts = torch.cat([ends.new_zeros(1), ends[:-1] + 1])
        return starts, ends

    known = searched()

    def step() -> torch.Tensor:
        starts, ends = searched() if sick else known
        chosen = torch.randint(len(starts), (64,), device=device)
        first = torch.minimum(starts[chosen], ends[chosen] - length).clamp_min(0)
        slices = states[first[:, None] + torch.arange(length, device=device)]
        loss = critic(slices).square().mean()
        loss.backward()
        critic.zero_grad()
        return loss.detach()

    return Workload(model=critic, step=step, name="slices of a replay buffer")
