"""AdamW with a group for each parameter: what one call does for a group is called for each parameter."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/roboflow/rf-detr/pull/1409"
MECHANISM = 8
CAUSE = "one parameter group a tensor, 465 where 28 differ: the fused optimizer is launched for each"
REPORTED = "59 ms an AdamW step, fused, on an L4"
NAMES = r"param(?:eter)?[_ ]groups?|\bgroups?\b"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(24, 24) for _ in range(60))).to(device)
    groups = (
        [{"params": [parameter]} for parameter in model.parameters()]
        if sick
        else [{"params": list(model.parameters())}]
    )
    optimizer = torch.optim.AdamW(groups, lr=1e-3, fused=True)
    x = torch.randn(16, 24, device=device)

    def step() -> torch.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()  # cause
        optimizer.zero_grad()
        return loss.detach()

    return Workload(model=model, step=step, optimizer=optimizer, name="training with many groups")
