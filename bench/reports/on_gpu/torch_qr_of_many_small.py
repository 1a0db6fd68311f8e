"""QR of many 3 x 3 matrices: one matrix after the other on a GPU."""

import torch

from bench.reports.on_gpu import DEVICE, sized
from gobrrr import Workload

SOURCE = "https://github.com/pytorch/pytorch/issues/143281"
MECHANISM = 2
CAUSE = "torch.linalg.qr of a batch of small matrices, factored one by one"
REPORTED = "8.1 s for 270,000 matrices on an H100; 0.11 s on a CPU"
NAMES = r"\bqr\b|linalg_qr|geqrf|householder|orgqr"
MATRICES = sized(600, 200)


def _by_columns(matrices: torch.Tensor) -> torch.Tensor:
    """Gram and Schmidt, for all matrices at once."""
    columns: list[torch.Tensor] = []
    for at in range(matrices.shape[-1]):
        column = matrices[..., at]
        for before in columns:
            column = column - (before * column).sum(-1, keepdim=True) * before
        columns.append(column / column.norm(dim=-1, keepdim=True))
    return torch.stack(columns, dim=-1)


def made(*, sick: bool) -> Workload:
    torch.manual_seed(0)
    features = torch.randn(MATRICES, 64, device=DEVICE)
    head = torch.nn.Linear(64, 9, device=DEVICE)

    def rotations(matrices: torch.Tensor) -> torch.Tensor:
        if sick:
            return torch.linalg.qr(matrices)[0]  # cause
        return _by_columns(matrices)

    def step() -> torch.Tensor:
        with torch.no_grad():
            return rotations(head(features).view(MATRICES, 3, 3)).square().mean()

    return Workload(model=head, step=step, name="rotations")
