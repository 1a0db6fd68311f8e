"""A training loop that logs and prints a line for each layer in each step."""

import io
import json
import logging
from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "O12", "O12", "cpu"


def _logger() -> logging.Logger:
    logger = logging.getLogger("bench.cases.o12")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.handlers = [logging.StreamHandler(io.StringIO())]
    return logger


def _made(device: str = "cpu", *, every: int) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(8)]).to(device)
    x = torch.randn(16, 64, device=device)
    logger, number = _logger(), 0

    def step() -> None:
        nonlocal number
        model(x).square().mean().backward()
        if number % every == 0:
            norms = [float(parameter.grad.norm()) for parameter in model.parameters() if parameter.grad is not None]
            for at, norm in enumerate(norms):
                logger.info("step %d layer %d: %s", number, at, json.dumps({"norm": norm, "at": at}))
        model.zero_grad(set_to_none=True)
        number += 1

    return Workload(model=model, step=step, name="a line for each layer")


faulty = partial(_made, every=1)  # In each step
fixed = partial(_made, every=1000)  # In one step of a thousand
