"""Programs whose fault needs a GPU; the rest as in `examples`."""

from __future__ import annotations

import re

from tests.treatments.remedies.examples import IMAGES, TRAINING, Example

SMALL = """
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(*[nn.Linear(16, 16) for _ in range(40)]).cuda()
x = torch.randn(4, 16, device="cuda")
# paste here


@torch.no_grad()
def step():
    return net(x).clone()
"""

PRODUCTS = """
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(4)]).cuda()
x = torch.randn(4096, 4096, device="cuda")
# paste here


def step():
    loss = net(x).float().square().mean()
    loss.backward()
    return loss.detach()
"""

VECTOR = """
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(*[nn.Linear(8192, 8192, bias=False) for _ in range(4)]).cuda().bfloat16()
x = torch.randn(1, 8192, device="cuda", dtype=torch.bfloat16)
# paste here


@torch.no_grad()
def step():
    return net(x)
"""

BATCHES = """
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
net = torch.nn.Linear(4096, 4096).cuda()
loader = DataLoader(TensorDataset(torch.randn(4096, 4096)), batch_size=256)
# paste here
batches = iter(loader)


@torch.no_grad()
def step():
    (batch,) = next(batches)
    return net(batch.to("cuda"))
"""

EMPTIED = """
import torch

torch.manual_seed(0)
net = torch.nn.Linear(4096, 4096).cuda()
x = torch.randn(4096, 4096, device="cuda")
# paste here


@torch.no_grad()
def step():
    y = net(x).relu()
    torch.cuda.empty_cache()
    return y
"""


def moved(source: str, *names: str) -> str:
    """A program for a CPU whose model and inputs go to the GPU."""
    lines = [f"{one}.cuda()" if one == "net" else f"{one} = {one}.cuda()" for one in names]
    return source.replace("# paste here", "\n".join([*lines, "# paste here"]))


LARGE_IMAGES = re.sub(r"\b(16|32)\b", "64", IMAGES)
"""Large enough that cuDNN converts the layout."""
ADAM = TRAINING.format(optimizer="Adam(net.parameters(), foreach=False)")
EXAMPLES = [
    Example("fused-optimizer", "O03", moved(ADAM, "net", "x"),
            "opt = torch.optim.Adam(net.parameters(), fused=True)", close=1e-4),
    Example("cuda-graph", "O01", SMALL, "net = torch.cuda.make_graphed_callables(net, (x,))", close=1e-4, slow=True),
    Example("max-autotune", "", VECTOR, 'net = torch.compile(net, mode="max-autotune")', close=2e-2, slow=True),
    Example("tf32", "C01", PRODUCTS, 'torch.set_float32_matmul_precision("high")', close=1e-2),
    Example("bf16-autocast", "C01", PRODUCTS, 'with torch.autocast("cuda", dtype=torch.bfloat16):', close=1e-2),
    Example("prefetch-pinned", "D02", BATCHES, "batch_size=256, pin_memory=True)", close=1e-5),
    Example("allocator", "O06", EMPTIED, "no torch.cuda.empty_cache() in the loop"),
    Example("channels-last", "M05", moved(LARGE_IMAGES, "net", "images"),
            "images = images.to(memory_format=torch.channels_last)", close=1e-2),
]  # fmt: skip
