"""The costs of all queries against the targets of all images go to the host; each image needs its own block alone."""

import torch

from bench.reports.on_gpu import DEVICE, sized
from gobrrr import Workload

SOURCE = "https://github.com/roboflow/rf-detr/pull/1281"
MECHANISM = 6
CAUSE = "the whole cost matrix is copied to the host, of which one block an image is used"
REPORTED = "the copy is smaller by the batch size"
NAMES = r"cop(?:y|ies|ied)|transfer|pageable|to the host|reads? the device|host waits|\.cpu\("
BATCH, QUERIES, TARGETS, WIDTH = sized(16, 4), sized(900, 40), sized(40, 6), sized(256, 16)


def made(*, sick: bool) -> Workload:
    torch.manual_seed(0)
    decoder = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 4)).to(DEVICE)
    hidden = torch.randn(BATCH, QUERIES, WIDTH, device=DEVICE)
    boxes = torch.rand(BATCH * TARGETS, 4, device=DEVICE)

    def matched(predicted: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            costs = torch.cdist(predicted, boxes, p=1)
            if sick:
                costs = costs.cpu()  # cause
                blocks = [costs[at, :, at * TARGETS : (at + 1) * TARGETS] for at in range(BATCH)]
            else:
                own = costs.view(BATCH, QUERIES, BATCH, TARGETS).diagonal(dim1=0, dim2=2)
                blocks = list(own.permute(2, 0, 1).contiguous().cpu())
            return torch.stack([block.min(dim=0).indices for block in blocks]).to(DEVICE)

    def step() -> torch.Tensor:
        predicted = decoder(hidden)
        chosen = predicted.gather(1, matched(predicted)[..., None].expand(-1, -1, 4))
        loss = (chosen - boxes.view(BATCH, TARGETS, 4)).abs().mean()
        loss.backward()
        decoder.zero_grad()
        return loss.detach()

    return Workload(model=decoder, step=step, name="a matcher")
