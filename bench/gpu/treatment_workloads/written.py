"""Workloads as people write their scripts. They are in no family: no third of them is set aside, nothing is fitted."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

import gobrrr
from bench import vision
from bench.gpu.pairs_form import Setting
from bench.gpu.pairs_models import Layer
from bench.gpu.treatment_workloads.form import Entry, made, trained
from bench.gpu.treatment_workloads.tables import WideAndDeep

LINES = 100_000
"""Rows of a table of embeddings, and texts of a data set that nobody reads to its end."""


class Texts(Dataset[Any]):
    """Random tokens, one more than a model reads."""

    def __init__(self, vocab: int, seq: int) -> None:
        self.vocab, self.seq = vocab, seq

    def __len__(self) -> int:
        return LINES

    def __getitem__(self, index: int) -> Any:
        dice = torch.Generator().manual_seed(index)
        return torch.randint(self.vocab, (self.seq + 1,), generator=dice)


class Language(nn.Module):
    """A GPT that makes its positions in each step."""

    def __init__(self, vocab: int, width: int, depth: int, heads: int, seq: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, width), nn.Embedding(seq, width)
        self.layers = nn.Sequential(*(Layer(width, heads, causal=True, fused=True) for _ in range(depth)))
        self.head = nn.Linear(width, vocab)

    def forward(self, ids: Any) -> Any:
        """ids: [B, S] -> [B, S, vocab]."""
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.layers(x))


def gpt_script(at: Setting) -> gobrrr.Workload:
    """A step with its data, autocast, clipping and the loss read by the host."""
    vocab, seq, width = at.size(8000, 67), at.size(256, 16), at.size(512, 32)
    model = made(at, Language, vocab, width, at.size(8, 1), at.size(8, 2), seq).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    loader = DataLoader(Texts(vocab, seq), batch_size=at.size(8, 2), num_workers=at.size(2, 0))
    losses: list[float] = []

    def step(ids: Any) -> Any:
        ids = ids.to(at.device)
        with at.autocast():
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses[:] = [loss.item()]
        return loss

    return gobrrr.Workload(model=model, step=step, optimizer=optimizer, loader=loader)


def convnext_timm(at: Setting) -> gobrrr.Workload:
    """timm's convnext_tiny; at tiny sizes one of our own, for timm has none so small."""
    batch, side = at.size(64, 2), at.size(224, 32)
    if at.tiny:
        model = made(at, lambda: vision.convnext(1, (1, 1), (16, 32))[0])
    else:
        import timm

        model = made(at, timm.create_model, "convnext_tiny", num_classes=1000)
    return trained(model, F.cross_entropy, (at.randn(batch, 3, side, side),), (at.tokens(1000, batch),))


def columns_train(at: Setting) -> gobrrr.Workload:
    """A recommender whose tables are dense to the optimizer."""
    rows, batch = at.size(LINES, 100), at.size(4096, 32)
    model = made(at, WideAndDeep, at.size(26, 3), rows, at.size(64, 8), 512)
    given = at.randn(batch, 13), at.tokens(rows, batch, at.size(26, 3))
    return trained(model, F.binary_cross_entropy_with_logits, given, (at.randn(batch).sigmoid(),))


WRITTEN = {
    entry.name: entry
    for entry in (
        Entry("gpt_script", "written", "a GPT of 8 layers of 512 in a plain script: bf16 autocast, batch 8 of 256 from "
              "a DataLoader of 2 workers, gradients clipped, the loss read in each step, AdamW", "cuda", True,
              gpt_script),
        Entry("convnext_timm", "written", "timm's convnext_tiny training in fp32, batch 64, AdamW", "cuda", False,
              convnext_timm),
        Entry("columns_train", "written", "26 embeddings of 100,000 rows and a deep network training in fp32, batch "
              "4096, AdamW", "cuda", False, columns_train),
    )
}  # fmt: skip
"""By name."""
