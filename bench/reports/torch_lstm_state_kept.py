"""An LSTM whose state is never detached: each backward pass goes through all earlier batches."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/pytorch/pytorch/issues/2769"
MECHANISM = 4
CAUSE = "the hidden state keeps the graph of all earlier batches (retain_graph=True)"
REPORTED = "explosive growth of time and memory in training"
NAMES = r"grow|retain_graph|detach|ris(?:es|ing)|from step to step|longer each step"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.LSTM(32, 64).to(device)
    x = torch.randn(6, 8, 32, device=device)
    state = [torch.zeros(1, 8, 64, device=device), torch.zeros(1, 8, 64, device=device)]

    def step() -> torch.Tensor:
        y, (hidden, cell) = model(x, (state[0], state[1]))
        loss = y.square().mean()
        if sick:
            loss.backward(retain_graph=True)  # cause
            state[:] = [hidden, cell]
        else:
            loss.backward()
            state[:] = [hidden.detach(), cell.detach()]
        for parameter in model.parameters():
            parameter.data -= 1e-3 * parameter.grad
            parameter.grad = None
        return loss.detach()

    return Workload(model=model, step=step, name="an LSTM over a stream")
