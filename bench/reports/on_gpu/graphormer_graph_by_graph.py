"""Attention with a loop over the heads and one over the graphs of the batch within it."""

import torch

from bench.reports.on_gpu import DEVICE, sized
from gobrrr import Workload

SOURCE = "https://github.com/leffff/graphormer-pyg/issues/24"
MECHANISM = 5
CAUSE = "a loop over heads and graphs on the host: each pair has launches of its own"
REPORTED = "time grows with the number of heads and of graphs"
NAMES = r"\bloop|\bturns?\b"
HEADS, GRAPHS, NODES, WIDTH = sized(8, 2), sized(16, 4), sized(32, 8), sized(256, 16)


def made(*, sick: bool) -> Workload:
    torch.manual_seed(0)
    head = WIDTH // HEADS
    project = torch.nn.Linear(WIDTH, 3 * WIDTH, device=DEVICE)
    x = torch.randn(GRAPHS * NODES, WIDTH, device=DEVICE)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        heads = []
        for at in range(HEADS):
            own = slice(at * head, (at + 1) * head)
            out = torch.zeros(GRAPHS * NODES, head, device=DEVICE)
            for graph in range(GRAPHS):
                rows = slice(graph * NODES, (graph + 1) * NODES)
                scores = q[rows, own] @ k[rows, own].T / head**0.5  # cause
                out[rows] = torch.softmax(scores, dim=-1) @ v[rows, own]  # cause
            heads.append(out)
        return torch.cat(heads, dim=-1)

    def at_once(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.view(GRAPHS, NODES, HEADS, head).transpose(1, 2) for part in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(-1, WIDTH)

    def step() -> torch.Tensor:
        q, k, v = project(x).chunk(3, dim=-1)
        loss = (attend if sick else at_once)(q, k, v).square().mean()
        loss.backward()
        project.zero_grad()
        return loss.detach()

    return Workload(model=project, step=step, name="attention within graphs")
