"""A metric that joins the predictions of each batch to all earlier ones: the copies grow with the epoch."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/pytorch/ignite/pull/967"
MECHANISM = 4
CAUSE = "torch.cat of all predictions so far in each update: quadratic in the batches"
REPORTED = "from O(N^2) to O(N)"
NAMES = r"grow|quadratic|\bcat\b|concat|preallocat"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 32).to(device)
    batches = torch.randn(150, 64, 16, device=device)

    def step() -> torch.Tensor:
        predictions = torch.empty(0, 32, device=device)
        kept = []
        with torch.no_grad():
            for batch in batches:
                if sick:
                    predictions = torch.cat([predictions, model(batch)])  # cause
                else:
                    kept.append(model(batch))
        return predictions if sick else torch.cat(kept)

    return Workload(model=model, step=step, name="an epoch of evaluation")
