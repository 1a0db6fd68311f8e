"""A policy that makes a Normal distribution in each step of an environment: its arguments are checked each time."""

import torch
from torch.distributions import Normal

from gobrrr import Workload

SOURCE = "https://github.com/leggedrobotics/rsl_rl/pull/69"
MECHANISM = 1
CAUSE = "argument validation of torch.distributions, which was meant to be off"
REPORTED = "pytorch/pytorch#66800: 12 % of an evaluation step of soft actor-critic"
NAMES = r"validat|argument check"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    actor = torch.nn.Sequential(torch.nn.Linear(48, 64), torch.nn.ELU(), torch.nn.Linear(64, 12)).to(device)
    scale = torch.ones(12, device=device)
    observations = torch.randn(64, 48, device=device)

    def act(mean: torch.Tensor) -> torch.Tensor:
        if sick:
            policy = Normal(mean, scale.expand_as(mean))  # cause
            return policy.log_prob(mean + 0.1).sum(-1) + policy.entropy().sum(-1)  # cause
        policy = Normal(mean, scale.expand_as(mean), validate_args=False)
        return policy.log_prob(mean + 0.1).sum(-1) + policy.entropy().sum(-1)

    def step() -> torch.Tensor:
        with torch.no_grad():
            return torch.stack([act(actor(observations)) for _ in range(24)])

    return Workload(model=actor, step=step, name="rollout of a policy")
