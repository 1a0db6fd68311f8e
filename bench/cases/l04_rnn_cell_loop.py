"""A recurrent cell called for each timestep, against the library's own layer."""

from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "L04", "O04", "cpu"
STEPS, BATCH, WIDTH = 100, 8, 64


def _made(device: str = "cpu", *, cells: bool) -> Workload:
    torch.manual_seed(0)
    model = (torch.nn.LSTMCell if cells else torch.nn.LSTM)(WIDTH, WIDTH).to(device)
    x = torch.randn(STEPS, BATCH, WIDTH, device=device)

    def outputs() -> torch.Tensor:
        if not cells:
            return model(x)[0]
        h, c = torch.zeros(BATCH, WIDTH, device=device), torch.zeros(BATCH, WIDTH, device=device)
        kept = []
        for t in range(STEPS):
            h, c = model(x[t], (h, c))
            kept.append(h)
        return torch.stack(kept)

    def step() -> None:
        outputs().square().mean().backward()
        model.zero_grad(set_to_none=True)

    return Workload(model=model, step=step, name="an LSTM over timesteps")


faulty = partial(_made, cells=True)  # 100 turns of an LSTMCell
fixed = partial(_made, cells=False)  # All timesteps in one call
