"""Pairs whose faulty step is bound by the host: loops over parameters, timesteps or experts, many tiny launches."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from bench.gpu.pairs_form import Recipe, Setting, Step, captured, inference, training, with_precision
from bench.gpu.pairs_models import layers, perceptron


def parameters_one_by_one(setting: Setting, fused: bool) -> Step:
    """A small transformer whose AdamW goes through the parameters in Python, or takes them all at once."""
    width = setting.size(512, 64)
    model = layers(setting, width, setting.size(2, 1), setting.size(8, 2))
    x = setting.randn(setting.size(16, 2), setting.size(128, 16), width)
    how = {"fused": True} if fused else {"foreach": False}
    optimizer = torch.optim.AdamW(model.parameters(), **how)
    return training(setting, lambda: model(x).float().square().mean(), optimizer)


class Recurrent(nn.Module):
    """An LSTM over timesteps: a cell for each of them, or the library's layer."""

    def __init__(self, width: int, *, whole: bool) -> None:
        super().__init__()
        self.whole = whole
        self.body = nn.LSTM(width, width) if whole else nn.LSTMCell(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [T, B, width] -> the same."""
        if self.whole:
            return self.body(x)[0]
        state = (torch.zeros_like(x[0]), torch.zeros_like(x[0]))
        outputs = []
        for t in range(len(x)):
            state = self.body(x[t], state)
            outputs.append(state[0])
        return torch.stack(outputs)


def recurrence(setting: Setting, whole: bool) -> Step:
    """A training step over a day of hourly readings, in float32 with TF32."""
    width = setting.size(512, 32)
    with torch.device(setting.device):
        model = Recurrent(width, whole=whole)
    x = setting.randn(24, setting.size(128, 2), width)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    # the library's layer uses TF32 unless told otherwise, matmuls do not
    return with_precision("high", training(setting, lambda: model(x).square().mean(), optimizer, amp=False))


def average(setting: Setting, at_once: bool) -> Step:
    """A training step that ends with the moving average of 80 weights."""
    width = setting.size(256, 32)
    model = perceptron(setting, width, setting.size(20, 2), norm=True)
    x = setting.randn(setting.size(256, 4), width)
    weights = list(model.parameters())
    averages = [weight.detach().clone() for weight in weights]
    optimizer = torch.optim.AdamW(weights, fused=True)
    train = training(setting, lambda: F.mse_loss(model(x), x), optimizer, amp=False)

    @torch.no_grad()
    def update() -> None:
        if at_once:
            torch._foreach_lerp_(averages, weights, 0.001)
            return
        for mean, weight in zip(averages, weights, strict=True):
            mean.mul_(0.999).add_(weight, alpha=0.001)

    def step() -> None:
        train()
        update()

    return step


def small_batch(setting: Setting) -> Step:
    """One sentence through a small encoder in bfloat16."""
    width = setting.size(384, 32)
    model = layers(setting, width, setting.size(8, 2), setting.size(6, 2)).bfloat16().eval()
    x = setting.randn(1, setting.size(64, 8), width, dtype=torch.bfloat16)
    return inference(lambda: model(x))


def policy(setting: Setting) -> Step:
    """A small policy network's training step, which a graph can hold as it is."""
    width = setting.size(256, 32)
    model = perceptron(setting, width, setting.size(8, 2), norm=True)
    x = setting.randn(setting.size(256, 4), width)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True, capturable=setting.device == "cuda")
    return training(setting, lambda: F.mse_loss(model(x), x), optimizer, amp=False)


class Decoder(nn.Module):
    """Decoder layers for one token against the keys and values of a prompt, which stay as they are."""

    def __init__(self, width: int, depth: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.turns = nn.ModuleList(
            nn.ModuleDict({
                "n1": nn.LayerNorm(width), "q": nn.Linear(width, width), "out": nn.Linear(width, width),
                "n2": nn.LayerNorm(width), "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width),
            })
            for _ in range(depth)
        )  # fmt: skip
        self.register_buffer("keys", torch.randn(depth, 1, heads, length, width // heads))
        self.register_buffer("values", torch.randn(depth, 1, heads, length, width // heads))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [1, 1, width] -> the same."""
        for number, turn in enumerate(self.turns):
            q = turn["q"](turn["n1"](x)).view(1, 1, self.heads, -1).transpose(1, 2)
            y = F.scaled_dot_product_attention(q, self.keys[number], self.values[number])
            x = x + turn["out"](y.transpose(1, 2).reshape(x.shape))
            x = x + turn["down"](F.gelu(turn["up"](turn["n2"](x))))
        return x


def decoding(setting: Setting, compiled: bool) -> Step:
    """One token of a small decoder in bfloat16."""
    width = setting.size(512, 32)
    with torch.device(setting.device):
        model = Decoder(width, setting.size(12, 2), setting.size(8, 2), setting.size(256, 16)).bfloat16().eval()
    x = setting.randn(1, 1, width, dtype=torch.bfloat16)
    forward = setting.compiled(model, "reduce-overhead") if compiled else model
    return inference(lambda: forward(x))


class Experts(nn.Module):
    """A mixture of experts: a loop that asks how many tokens each has, or one grouped matmul."""

    def __init__(self, width: int, experts: int, chosen: int, *, loop: bool) -> None:
        super().__init__()
        self.experts, self.chosen, self.loop = experts, chosen, loop
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(0.02 * torch.randn(experts, width, 2 * width))
        self.down = nn.Parameter(0.02 * torch.randn(experts, 2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [tokens, width] -> the same."""
        share, which = self.router(x).softmax(-1).topk(self.chosen, -1)
        return self._loop(x, share, which) if self.loop else self._grouped(x, share, which)

    def _loop(self, x: torch.Tensor, share: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        for expert in range(self.experts):
            mine = which == expert
            if mine.sum().item() == 0:
                continue
            rows, columns = mine.nonzero(as_tuple=True)
            y = F.silu(x[rows] @ self.up[expert]) @ self.down[expert]
            out.index_add_(0, rows, y * share[rows, columns, None])
        return out

    def _grouped(self, x: torch.Tensor, share: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
        grouped = getattr(F, "grouped_mm", None) or torch._grouped_mm
        flat = which.flatten()
        order = flat.argsort()
        ends = torch.bincount(flat, minlength=self.experts).cumsum(0).to(torch.int32)
        rows = order // self.chosen
        y = grouped(F.silu(grouped(x[rows], self.up, offs=ends)), self.down, offs=ends)
        return torch.zeros_like(x).index_add_(0, rows, y * share.flatten()[order, None])


def mixture(setting: Setting, loop: bool) -> Step:
    """The experts' forward pass in bfloat16."""
    width = setting.size(1024, 32)
    with torch.device(setting.device):
        model = Experts(width, setting.size(16, 4), 2, loop=loop).bfloat16()
    x = setting.randn(setting.size(4096, 32), width, dtype=torch.bfloat16)
    return inference(lambda: model(x))


RECIPES = (
    Recipe(
        "optimizer_loop", "AdamW parameter by parameter", "overhead", ("O03",), ("fused-optimizer",),
        lambda s: parameters_one_by_one(s, fused=False), lambda s: parameters_one_by_one(s, fused=True),
    ),
    Recipe(
        "timestep_loop", "an LSTM cell for each timestep, trained", "overhead", ("O04",), ("recurrent-layer",),
        lambda s: recurrence(s, whole=False), lambda s: recurrence(s, whole=True),
    ),
    Recipe(
        "average_loop", "a moving average of weights, one by one", "overhead", ("O11",), ("foreach",),
        lambda s: average(s, at_once=False), lambda s: average(s, at_once=True),
    ),
    Recipe(
        "small_batch_graph", "one sentence through an encoder", "overhead", ("O01",), ("cuda-graph",),
        small_batch, lambda s: captured(small_batch(s)), needs_gpu=True,
    ),
    Recipe(
        "policy_training_graph", "a small network's training step", "overhead", ("O01",), ("cuda-graph",),
        policy, lambda s: captured(policy(s)), needs_gpu=True,
    ),
    Recipe(
        "expert_loop", "a loop over experts with .item() and nonzero", "overhead", ("O02", "O04"), ("grouped-matmul",),
        lambda s: mixture(s, loop=True), lambda s: mixture(s, loop=False),
    ),
    Recipe(
        "decoder_reduce_overhead", "one token of a small decoder", "overhead", ("O01",), ("compile", "cuda-graph"),
        lambda s: decoding(s, compiled=False), lambda s: decoding(s, compiled=True), compiles=True,
    ),
)  # fmt: skip
