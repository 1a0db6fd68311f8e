"""Meta-learning: the gradient of each inner step goes back through all earlier inner steps."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/facebookresearch/higher/issues/20"
MECHANISM = 4
CAUSE = "each inner step computes gradients through all states that are kept, not only through its own"
REPORTED = "0.5 s for the 2nd inner step, 2.2 s for the 7th"
NAMES = r"grow|turn (?:by|to) turn|later turns|all earlier|retain_graph|quadratic"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    first = [torch.randn(64, 64, device=device, requires_grad=True) for _ in range(2)]
    x, y = torch.randn(16, 64, device=device), torch.randn(16, 64, device=device)

    def loss(weights: list[torch.Tensor]) -> torch.Tensor:
        return ((x @ weights[0] * 0.1).tanh() @ weights[1] * 0.1 - y).square().mean()

    def step() -> torch.Tensor:
        weights = list(first)
        for _ in range(12):
            asked = [*first, *weights] if sick else weights
            found = torch.autograd.grad(loss(weights), asked, create_graph=True)[-2:]  # cause
            weights = [weight - 0.1 * grad for weight, grad in zip(weights, found, strict=True)]
        return loss(weights).detach()

    return Workload(step=step, name="inner loop of meta-learning")
