"""Recommenders, tables and agents: many small operations, large embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import gobrrr
from bench import networks
from bench.gpu.pairs_form import Setting
from bench.gpu.treatment_workloads.form import made, served, trained, workload


def dense(sizes: Sequence[int], norm: bool = False, dropout: float = 0.0) -> Any:
    """Linear layers with ReLU between them, with batch norm and dropout if so wished."""
    body: list[Any] = []
    for wide, out in pairwise(sizes):
        body += [nn.Linear(wide, out), *([nn.BatchNorm1d(out)] if norm else []), nn.ReLU(),
                 *([nn.Dropout(dropout)] if dropout else [])]  # fmt: skip
    return nn.Sequential(*body[: -1 if not dropout else -2])


class WideAndDeep(nn.Module):
    """An embedding a column, concatenated with numbers, then linear layers."""

    def __init__(self, columns: int, rows: int, width: int, hidden: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(columns))
        self.deep = dense((columns * width + 13, hidden, hidden // 2, 1))

    def forward(self, numbers: Any, ids: Any) -> Any:
        """numbers: [B, 13], ids: [B, columns] -> [B]."""
        found = [table(ids[:, at]) for at, table in enumerate(self.tables)]
        return self.deep(torch.cat([*found, numbers], 1)).squeeze(1)


class FeatureTransformer(nn.Module):
    """A token a column of numbers, then a transformer (FT-Transformer)."""

    def __init__(self, columns: int, width: int, layers: int) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.randn(columns, width)), nn.Parameter(torch.randn(columns, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 2)

    def forward(self, x: Any) -> Any:
        """x: [B, columns] -> [B, 2]."""
        return self.head(self.body(x[:, :, None] * self.scale + self.shift).mean(1))


class ActorCritic(nn.Module):
    """A policy and a value with a body each."""

    def __init__(self, observed: int, actions: int, hidden: int) -> None:
        super().__init__()
        self.policy, self.value = (
            nn.Sequential(nn.Linear(observed, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(),
                          nn.Linear(hidden, out))
            for out in (actions, 1)
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        """x: [B, observed] -> ([B, actions], [B])."""
        return self.policy(x), self.value(x).squeeze(-1)


def ppo(at: Setting, batch: int, hidden: int) -> gobrrr.Workload:
    """One update of proximal policy optimisation on a minibatch, as a closure."""
    batch = at.size(batch, 4)
    model = made(at, ActorCritic, 17, 6, at.size(hidden, 8)).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, eps=1e-5)
    seen, acts = at.randn(batch, 17), at.tokens(6, batch)
    before, gain, returns = at.randn(batch) * 0.01 - 1.8, at.randn(batch), at.randn(batch)

    def step() -> Any:
        logits, value = model(seen)
        chances = F.log_softmax(logits, -1)
        ratio = (chances.gather(1, acts[:, None]).squeeze(1) - before).exp()
        fair = (gain - gain.mean()) / (gain.std() + 1e-8)
        policy = -torch.min(ratio * fair, ratio.clamp(0.8, 1.2) * fair).mean()
        loss = policy + 0.5 * F.mse_loss(value, returns) + 0.01 * (chances.exp() * chances).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss

    return gobrrr.Workload(model=model, step=step, optimizer=optimizer)


@workload("recommender", "DLRM of 26 bags of embeddings training in fp32, batch 4096, SGD")
def dlrm_train(at: Setting) -> gobrrr.Workload:
    tables, rows, batch = at.size(26, 3), at.size(50_000, 50), at.size(4096, 4)
    model = made(at, networks.Dlrm, tables, rows, 64)
    given = at.randn(batch, 13), at.tokens(rows, tables, batch, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    targets = (at.randn(batch, 1).sigmoid(),)
    return trained(model, F.binary_cross_entropy_with_logits, given, targets, optimizer=optimizer)


@workload("recommender", "an embedding each of 40 columns and a deep network training in fp32, batch 1024, AdamW")
def wide_and_deep_train(at: Setting) -> gobrrr.Workload:
    columns, rows, batch = at.size(40, 3), at.size(20_000, 50), at.size(1024, 4)
    model = made(at, WideAndDeep, columns, rows, at.size(32, 4), at.size(512, 8))
    given = at.randn(batch, 13), at.tokens(rows, batch, columns)
    return trained(model, F.binary_cross_entropy_with_logits, given, (torch.rand_like(given[0][:, 0]),))


@workload("recommender", "DLRM inference in fp32, batch 128")
def dlrm_serve(at: Setting) -> gobrrr.Workload:
    tables, rows, batch = at.size(26, 3), at.size(50_000, 50), at.size(128, 4)
    return served(made(at, networks.Dlrm, tables, rows, 64), at.randn(batch, 13), at.tokens(rows, tables, batch, 4))


@workload("tabular", "a network of 4 layers of 512 with batch norm and dropout on a table, batch 2048, AdamW")
def tabular_train(at: Setting) -> gobrrr.Workload:
    batch, hidden = at.size(2048, 4), at.size(512, 8)
    model = made(at, dense, (64, hidden, hidden, hidden, 2), True, 0.1)
    return trained(model, F.cross_entropy, (at.randn(batch, 64),), (at.tokens(2, batch),))


@workload("tabular", "a transformer over 60 columns training in fp32, batch 512, AdamW")
def tabular_transformer_train(at: Setting) -> gobrrr.Workload:
    batch, columns = at.size(512, 4), at.size(60, 5)
    model = made(at, FeatureTransformer, columns, at.size(192, 8), at.size(4, 1))
    return trained(model, F.cross_entropy, (at.randn(batch, columns),), (at.tokens(2, batch),))


@workload("tabular", "a network of 10 layers of 256 on a table, inference in fp32, batch 64")
def tabular_serve(at: Setting) -> gobrrr.Workload:
    return served(made(at, dense, (64, *[at.size(256, 8)] * 10, 2), True), at.randn(at.size(64, 4), 64))


@workload("agent", "an update of PPO on a minibatch of 256, hidden layers of 64, gradients clipped, Adam")
def ppo_train(at: Setting) -> gobrrr.Workload:
    return ppo(at, 256, 64)


@workload("agent", "a step of DQN on 32 stacks of 84 x 84 frames with a target network, Adam")
def dqn_train(at: Setting) -> gobrrr.Workload:
    batch = at.size(32, 2)

    def network() -> Any:
        body = (nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU())
        return nn.Sequential(*body, nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 6))

    model, target = made(at, network).train(), made(at, network).eval()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    now, then = at.randn(batch, 4, 84, 84), at.randn(batch, 4, 84, 84)
    acts, reward, alive = at.tokens(6, batch), at.randn(batch), at.randn(batch).gt(-1).float()

    def step() -> Any:
        with torch.no_grad():
            wanted = reward + 0.99 * alive * target(then).max(1).values
        loss = F.smooth_l1_loss(model(now).gather(1, acts[:, None]).squeeze(1), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return gobrrr.Workload(model=model, step=step, optimizer=optimizer)


@workload("agent", "a policy and a value for one observation, hidden layers of 256, inference in fp32")
def policy_serve_one(at: Setting) -> gobrrr.Workload:
    return served(made(at, ActorCritic, 17, 6, at.size(256, 8)), at.randn(1, 17))
