"""Programs with one fault each, small enough for any CPU, whose remedy's text is pasted into them and run.

Each has `step()`, which returns what the step computes, and a line `# paste here`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True)
class Example:
    """A program, the finding that it shows and the treatment whose text mends it.

    `says`: what the text says. `close`: how far results may lie apart, relative to the largest one; None: the remedy
    changes what is computed by choice, and the step has to run.
    """

    treatment: str
    code: str
    source: str
    says: str
    close: float | None = 0.0
    slow: bool = False

    def marked(self) -> Any:
        """As a test's parameter."""
        return pytest.param(self, id=self.treatment, marks=[pytest.mark.slow] if self.slow else [])


TRAINING = """
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(*[nn.Linear(64, 64) for _ in range(16)])
opt = torch.optim.{optimizer}
x = torch.randn(4, 64)
# paste here


def step():
    opt.zero_grad()
    net(x).square().mean().backward()
    opt.step()
    return net(x)
"""


def optimizer(call: str, says: str, *, slow: bool = False) -> Example:
    return Example("fused-optimizer", "O03", TRAINING.format(optimizer=call), says, close=1e-4, slow=slow)


OPTIMIZERS = [
    optimizer("Adam(net.parameters(), lr=1e-3, betas=(0.8, 0.9), foreach=False)",
              "opt = torch.optim.Adam(net.parameters(), lr=1e-3, betas=(0.8, 0.9), fused=True)  #"),
    optimizer("AdamW(net.parameters(), weight_decay=.1)",
              "AdamW(net.parameters(), weight_decay=.1, fused=True)  #", slow=True),
    optimizer("SGD(net.parameters(), 1e-2, momentum=0.9)",
              "SGD(net.parameters(), 1e-2, momentum=0.9, fused=True)  #", slow=True),
    optimizer("Adagrad(net.parameters())", "Adagrad(net.parameters(), fused=True)  #", slow=True),
    optimizer("RMSprop(net.parameters())", "RMSprop(net.parameters(), foreach=True)  #"),
    optimizer("Adadelta(net.parameters())", "Adadelta(net.parameters(), foreach=True)  #", slow=True),
]  # fmt: skip

OWN = TRAINING.replace(
    "opt = torch.optim.{optimizer}",
    """

class Lion(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": 1e-4})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.sub_(torch.sign(m.lerp(p.grad, 0.1)).mul_(group["lr"]))
                m.lerp_(p.grad, 0.01)


opt = Lion(net.parameters())
""",
)

DOUBLE = """
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
np.random.seed(0)
model = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 256)).eval().double()
noise = torch.from_numpy(np.random.randn(64, 256))
# paste here


@torch.no_grad()
def step():
    return model(noise * 2.0)
"""

ARRAYS = """
import numpy as np
import torch

torch.manual_seed(0)
x, weight = torch.randn(64, 256), torch.randn(256, 256)
scale = torch.from_numpy(np.sqrt(np.arange(1.0, 257.0)))
# paste here


def mixed(h, by):
    target = torch.from_numpy(np.ones((64, 256)))
    return torch.nn.functional.gelu(h / by) - target


def step():
    return mixed(x @ weight, scale)
"""

DEFAULT = """
import torch
from torch import nn

torch.set_default_dtype(torch.float64)
net = nn.Linear(256, 256)
with torch.no_grad():
    net.weight.copy_(torch.linspace(-1, 1, 256 * 256).view(256, 256))
    net.bias.zero_()
x = torch.linspace(0, 1, 64 * 256).view(64, 256)
# paste here


@torch.no_grad()
def step():
    return net(x).relu().mul(2.0)
"""

LOADER = """
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Items(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.full((8,), float(index))


torch.manual_seed(0)
net = torch.nn.Linear(8, 8)
valid = DataLoader(Items(), batch_size=4)
train = DataLoader(Items(), 4, shuffle=False)
# paste here
batches = iter(train)


@torch.no_grad()
def step():
    return net(next(batches))
"""

SMALL = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
net = nn.Sequential(*[nn.Linear(16, 16) for _ in range(20)])
loader = DataLoader(TensorDataset(torch.randn(20_000, 16)), batch_size=4)
# paste here
batches = iter(loader)


@torch.no_grad()
def step():
    (batch,) = next(batches)
    return net(batch)[:4]
"""

PRODUCTS = """
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).requires_grad_({learns})
x = torch.randn(128, 512)
# paste here


def step():
    out = net(x)
    loss = out.float().square().mean()
    {backward}
    return loss
"""

AUTOCAST = """
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(4)]).eval()
x = torch.randn(4, 512)
# paste here


def step():
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        return net(x)
"""

THREADS = """
import os

import torch

torch.manual_seed(0)
torch.set_num_threads(8 * os.cpu_count())
a = torch.randn(256, 256)
# paste here


def step():
    return torch.nn.functional.gelu(a @ a)
"""

OBJECTS = """
import torch

torch.manual_seed(0)
net = torch.nn.Linear(64, 64)
x = torch.randn(64, 64)
# paste here


@torch.no_grad()
def step():
    samples = [[number, []] for number in range(3000)]
    result = net(x)
    samples.clear()
    return result
"""

ANOMALY = """
import torch
from torch import nn

torch.manual_seed(0)
torch.autograd.set_detect_anomaly(True)
net = nn.Sequential(*[nn.Linear(16, 16) for _ in range(3)])
x = torch.randn(4, 16)
# paste here


def step():
    net.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    return net[0].weight.grad
"""

IMAGES = """
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3)).eval()
images = torch.randn(2, 16, 32, 32)
# paste here


@torch.no_grad()
def step():
    return net(images)
"""

AVERAGE = """
import torch

torch.manual_seed(0)
values, averages = ([torch.randn(8, 8) for _ in range(100)] for _ in range(2))
decay = 0.9
# paste here


def step():
    for mean, new in zip(averages, values): mean.mul_(decay).add_(new, alpha=1 - decay)
    return averages[7]
"""

ATTENTION = """
import torch

torch.manual_seed(0)
torch.set_num_threads(1)
q, k, v = (torch.randn(1, 2, 512, 32) for _ in range(3))
mask = torch.ones(512, 512, dtype=torch.bool).tril()
# paste here


def step():
    y = (q @ k.transpose(-2, -1) / 32**0.5).masked_fill(~mask, float("-inf")).softmax(-1) @ v
    return y
"""

NORM = """
import torch

torch.manual_seed(0)
torch.set_num_threads(1)
x, weight, bias, eps = torch.randn(512, 1024), torch.rand(1024), torch.rand(1024), 1e-5
# paste here


def step():
    y = (x - x.mean(-1, True)) * torch.rsqrt((x - x.mean(-1, True)).pow(2).mean(-1, True) + eps) * weight + bias
    return y
"""

ROWS = """
import torch

torch.manual_seed(0)
torch.set_num_threads(1)
table = torch.randn(4, 8, requires_grad=True)
ids = torch.randint(0, 4, (20_000,))
# paste here


def step():
    table.grad = None
    rows = table[ids]
    rows.sum().backward()
    return table.grad
"""

TABLE = """
import torch

torch.manual_seed(0)
torch.set_num_threads(1)
table = torch.nn.Embedding(50000, 32)
ids = torch.randint(0, 50000, (64,))
# paste here
optimizer = torch.optim.{optimizer}(table.parameters(), lr=0.1)


def step():
    optimizer.zero_grad()
    table(ids).square().mean().backward()
    globals().get("for_table", optimizer).step()
    return table(ids)
"""

EXAMPLES = [
    *OPTIMIZERS,
    Example("fused-optimizer", "O03", OWN, "opt.step = torch.compile(opt.step)", close=1e-4, slow=True),
    Example("cast-at-source", "C04", DOUBLE, "model = model.float()", close=1e-4),
    Example("cast-at-source", "C04", ARRAYS, "scale = scale.float()", close=1e-4, slow=True),
    Example("cast-at-source", "C04", DEFAULT, "torch.set_default_dtype(torch.float32)", close=1e-4),
    Example("dataloader-workers", "D01", LOADER, "train = DataLoader(Items(), 4, shuffle=False, num_workers="),
    Example("compile", "O01", SMALL, "net = torch.compile(net)", close=1e-4),
    Example("larger-batch", "O01", SMALL, "TensorDataset(torch.randn(20_000, 16)), batch_size=16 * 4)", close=None,
            slow=True),
    Example("bf16-autocast", "C01", PRODUCTS.format(learns=True, backward="loss.backward()"),
            'with torch.autocast("cpu", dtype=torch.bfloat16):', close=1e-2),
    Example("bf16-cast", "C01", PRODUCTS.format(learns=False, backward="pass"),
            "net = net.to(torch.bfloat16)", close=1e-2),
    Example("cast-once", "M06", AUTOCAST, "net = net.to(torch.bfloat16)", close=2e-2),
    Example("limit-threads", "O09", THREADS, "torch.set_num_threads(", close=1e-5),
    Example("gc-freeze", "O07", OBJECTS, "gc.collect(), gc.freeze(), gc.disable()"),
    Example("debug-off", "O08", ANOMALY, "torch.autograd.set_detect_anomaly(False)"),
    Example("channels-last", "M05", IMAGES, "images = images.to(memory_format=torch.channels_last)", close=1e-5),
    Example("foreach", "O11", AVERAGE, "torch._foreach_mul_(averages, decay)", close=1e-5),
    Example("sdpa", "M02", ATTENTION, "scaled_dot_product_attention(q, k, v, attn_mask=mask)", close=1e-5),
    Example("fused-norm", "M03", NORM, "functional.layer_norm(x, x.shape[-1:], weight, bias, eps)", close=1e-5),
    Example("gather-backward", "M08", ROWS, "rows = table.index_select(0, ids)", close=1e-5),
    Example("sparse-embedding", "M07", TABLE.format(optimizer="Adam"),
            "table = torch.nn.Embedding(50000, 32, sparse=True)", close=None),
    Example("sparse-embedding", "M07", TABLE.format(optimizer="SGD"),
            "table = torch.nn.Embedding(50000, 32, sparse=True)", close=None),
]  # fmt: skip
