"""Graph networks and mixtures of experts: gathers, scatters and loops over data."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import gobrrr
from bench.gpu.pairs_form import Setting
from bench.gpu.treatment_workloads.form import made, served, trained, workload
from bench.gpu.workloads import MoE


class MeanConvolution(nn.Module):
    """GraphSAGE: a node's own features and the mean of its neighbours'."""

    def __init__(self, wide: int, out: int) -> None:
        super().__init__()
        self.own, self.other = nn.Linear(wide, out), nn.Linear(wide, out, bias=False)

    def forward(self, x: Any, source: Any, target: Any) -> Any:
        """x: [N, wide], edges [E] and [E] -> [N, out]."""
        total = torch.zeros_like(x).index_add_(0, target, x[source])
        count = torch.zeros_like(x[:, :1]).index_add_(0, target, torch.ones_like(target, dtype=x.dtype)[:, None])
        return self.own(x) + self.other(total / count.clamp(min=1))


class AttentionConvolution(nn.Module):
    """GAT: neighbours weighted by a softmax over each node's edges."""

    def __init__(self, wide: int, out: int) -> None:
        super().__init__()
        self.value = nn.Linear(wide, out, bias=False)
        self.left, self.right = nn.Linear(out, 1), nn.Linear(out, 1)

    def forward(self, x: Any, source: Any, target: Any) -> Any:
        """x: [N, wide], edges [E] and [E] -> [N, out]."""
        h = self.value(x)
        score = F.leaky_relu(self.left(h)[source] + self.right(h)[target], 0.2).squeeze(1)
        weight = (score - score.max()).exp()
        total = torch.zeros_like(h[:, 0]).index_add_(0, target, weight)
        weight = weight / (total[target] + 1e-9)
        return torch.zeros_like(h).index_add_(0, target, h[source] * weight[:, None])


class GraphNetwork(nn.Module):
    """Layers over the same edges, which are kept as buffers."""

    def __init__(self, layer: Any, sizes: tuple[int, ...], source: Any, target: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layer(wide, out) for wide, out in pairwise(sizes))
        self.register_buffer("source", source)
        self.register_buffer("target", target)

    def forward(self, x: Any) -> Any:
        """x: [N, sizes[0]] -> [N, sizes[-1]]."""
        for at, layer in enumerate(self.layers):
            x = layer(F.relu(x) if at else x, self.source, self.target)
        return x


def network(at: Setting, layer: Any, nodes: int, edges: int, hidden: int) -> tuple[Any, Any]:
    """(a network of three layers over random edges, the features of its nodes)."""
    nodes, edges, hidden = at.size(nodes, 20), at.size(edges, 60), at.size(hidden, 8)
    source, target = at.tokens(nodes, edges), at.tokens(nodes, edges)
    return made(at, GraphNetwork, layer, (64, hidden, hidden, 16), source, target), at.randn(nodes, 64)


class DenseMoE(nn.Module):
    """A mixture that runs each expert on each token and weighs the results."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * width) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, 2 * width, width) * 0.02)

    def forward(self, x: Any) -> Any:
        """x: [N, width] -> the same."""
        h = F.gelu(torch.einsum("nd,edh->enh", x, self.up))
        return torch.einsum("enh,ehd,ne->nd", h, self.down, self.gate(x).softmax(-1))


@workload("graph", "GraphSAGE of 3 layers on 30,000 nodes and 300,000 edges training in fp32, AdamW")
def sage_train(at: Setting) -> gobrrr.Workload:
    model, x = network(at, MeanConvolution, 30_000, 300_000, 128)
    return trained(model, F.cross_entropy, (x,), (at.tokens(16, len(x)),))


@workload("graph", "a graph attention network on 10,000 nodes and 100,000 edges training in fp32, Adam")
def gat_train(at: Setting) -> gobrrr.Workload:
    model, x = network(at, AttentionConvolution, 10_000, 100_000, 128)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    return trained(model, F.cross_entropy, (x,), (at.tokens(16, len(x)),), optimizer=optimizer)


@workload("graph", "GraphSAGE on a graph of 500 nodes, inference in fp32")
def sage_serve(at: Setting) -> gobrrr.Workload:
    model, x = network(at, MeanConvolution, 500, 4000, 64)
    return served(model, x)


@workload("experts", "a mixture of 16 experts that loops over them on the host, training in fp32, 2,048 tokens, AdamW")
def moe_loop_train(at: Setting) -> gobrrr.Workload:
    width, count = at.size(512, 16), at.size(2048, 16)
    model, x = made(at, MoE, d=width, E=at.size(16, 4)), at.randn(count, width)
    return trained(model, F.mse_loss, (x,), (at.randn(count, width),))


@workload("experts", "a mixture of 8 experts that loops over them on the host, inference in fp32, 256 tokens")
def moe_loop_serve(at: Setting) -> gobrrr.Workload:
    width = at.size(768, 16)
    return served(made(at, MoE, d=width, E=at.size(8, 4)), at.randn(at.size(256, 8), width))


@workload("experts", "a dense mixture of 8 experts training in fp32, 2,048 tokens, AdamW")
def moe_dense_train(at: Setting) -> gobrrr.Workload:
    width, count = at.size(512, 16), at.size(2048, 16)
    model = made(at, DenseMoE, width, at.size(8, 4))
    return trained(model, F.mse_loss, (at.randn(count, width),), (at.randn(count, width),))
