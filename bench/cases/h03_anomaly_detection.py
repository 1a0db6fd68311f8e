"""Anomaly detection left on."""

import warnings
from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "H03", "O08", "cpu"


def _made(device: str = "cpu", *, anomaly: bool) -> Workload:
    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.ReLU()) for _ in range(8)]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(64, 128, device=device)

    def step() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says itself that it is slow
            with torch.autograd.set_detect_anomaly(anomaly):
                model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return Workload(model=model, step=step, optimizer=optimizer, name="anomaly detection")


faulty = partial(_made, anomaly=True)  # A stack for each operation, a check for each gradient
fixed = partial(_made, anomaly=False)  # Neither
