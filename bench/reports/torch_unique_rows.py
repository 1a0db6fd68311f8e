"""The distinct edges of a graph by unique(dim=0), which compares rows; a key a row needs a fraction of that."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/pytorch/pytorch/issues/18987"
MECHANISM = 2
CAUSE = "unique(dim=0) of 15,320 pairs on a CPU"
REPORTED = "60 ms, of flat values a few"
NAMES = r"\bunique"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    nodes = 600
    edges = torch.randint(nodes, (15_320, 2), device=device)
    features = torch.randn(nodes, 16, device=device)
    layer = torch.nn.Linear(16, 16).to(device)

    def distinct() -> torch.Tensor:
        if sick:
            return edges.unique(dim=0)  # cause
        keys = (edges[:, 0] * nodes + edges[:, 1]).unique()
        return torch.stack([keys // nodes, keys % nodes], dim=1)

    def step() -> torch.Tensor:
        with torch.no_grad():
            pairs = distinct()
            summed = torch.zeros_like(features).index_add_(0, pairs[:, 0], features[pairs[:, 1]])
            return layer(summed)

    return Workload(model=layer, step=step, name="graph layer")
