"""An adjacency matrix of learned vectors that each layer makes again."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/nnzhan/Graph-WaveNet/pull/1"
MECHANISM = 3
CAUSE = "softmax(relu(a @ b)) of the same parameters in each of 8 layers, where once a step is enough"
REPORTED = ""
NAMES = r"\bagain\b|same (?:work|data|values|result)|unchanged"


class _Net(torch.nn.Module):
    def __init__(self, *, sick: bool) -> None:
        super().__init__()
        self.a, self.b = (torch.nn.Parameter(torch.randn(200, 200)) for _ in range(2))
        self.layers, self.sick = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(8)), sick

    def adjacency(self) -> torch.Tensor:
        return torch.softmax(torch.relu(self.a[:, :10] @ self.b[:10]), dim=1)  # cause

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        once = None if self.sick else self.adjacency()
        for layer in self.layers:
            x = torch.relu(layer((self.adjacency() if once is None else once) @ x))  # cause
        return x


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = _Net(sick=sick).to(device)
    x = torch.randn(200, 8, device=device)

    def step() -> torch.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        model.zero_grad()
        return loss.detach()

    return Workload(model=model, step=step, name="graph network")
