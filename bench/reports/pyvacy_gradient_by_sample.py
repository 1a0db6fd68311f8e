"""Private training that makes the gradient of each sample by a backward pass of its own."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/ChrisWaites/pyvacy/issues/9"
MECHANISM = 5
CAUSE = "a forward and backward pass for each sample, where vmap of grad makes all gradients at once"
REPORTED = ""
NAMES = r"\bloop\b|turns|one batched operation|vmap"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2)).to(device)
    x, y = torch.randn(48, 16, device=device), torch.randint(2, (48,), device=device)
    weights = dict(model.named_parameters())

    def loss_of(given: dict[str, torch.Tensor], gradient: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        scores = torch.func.functional_call(model, given, (gradient.unsqueeze(0),))
        return torch.nn.functional.cross_entropy(scores, label.unsqueeze(0))

    at_once = torch.func.vmap(torch.func.grad(loss_of), (None, 0, 0))

    def clipped() -> list[torch.Tensor]:
        if not sick:
            made = list(at_once({name: weight.detach() for name, weight in weights.items()}, x, y).values())
            norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in made]).norm(dim=0)
            scale = (1 / (norms + 1e-6)).clamp(max=1)
            return [torch.einsum("b,b...->...", scale, gradient) for gradient in made]
        total = [torch.zeros_like(parameter) for parameter in model.parameters()]
        for at in range(len(x)):
            loss = torch.nn.functional.cross_entropy(model(x[at : at + 1]), y[at : at + 1])  # cause
            made = torch.autograd.grad(loss, list(model.parameters()))  # cause
            norm = torch.stack([gradient.norm() for gradient in made]).norm()  # cause
            torch._foreach_add_(total, torch._foreach_mul(made, (1 / (norm + 1e-6)).clamp(max=1)))  # cause
        return total

    def step() -> torch.Tensor:
        grads = clipped()
        with torch.no_grad():
            torch._foreach_sub_(list(model.parameters()), torch._foreach_mul(grads, 1e-4))
        return grads[0].detach()

    return Workload(model=model, step=step, name="private training")
