"""Recurrent networks, by cuDNN and by a loop over timesteps."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import gobrrr
from bench import networks
from bench.gpu.pairs_form import Setting
from bench.gpu.treatment_workloads.form import made, served, token_loss, trained, workload


class LanguageModel(networks.LstmLm):
    """Embedding, LSTM, a head over the vocabulary; the loss is the workload's."""

    forward = networks.LstmLm.logits


class Tagger(nn.Module):
    """A bidirectional GRU over features, and a class a series."""

    def __init__(self, features: int, width: int, layers: int, classes: int) -> None:
        super().__init__()
        self.core = nn.GRU(features, width, layers, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x: Any) -> Any:
        """x: [B, S, features] -> [B, classes]."""
        return self.head(self.core(x)[0].mean(1))


class Looped(nn.Module):
    """A GRU cell called for each timestep from Python."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(features, width), nn.Linear(width, 1)
        self.width = width

    def forward(self, x: Any) -> Any:
        """x: [B, S, features] -> [B, 1]."""
        state = x.new_zeros(x.shape[0], self.width)
        for at in range(x.shape[1]):
            state = self.cell(x[:, at], state)
        return self.head(state)


@workload("recurrent", "LSTM language model of 2 layers of 512 training in fp32, batch 32 of 64, AdamW")
def lstm_train(at: Setting) -> gobrrr.Workload:
    vocab = at.size(10_000, 50)
    ids = at.tokens(vocab, at.size(32, 2), at.size(64, 4))
    model = made(at, LanguageModel, vocab, at.size(512, 16), 2)
    return trained(model, token_loss, (ids,), (ids.roll(-1, 1).contiguous(),))


@workload("recurrent", "a bidirectional GRU over 256 timesteps training in fp32, batch 64, Adam")
def gru_train(at: Setting) -> gobrrr.Workload:
    batch = at.size(64, 2)
    model = made(at, Tagger, 40, at.size(256, 8), 2, 10)
    x, optimizer = at.randn(batch, at.size(256, 5), 40), torch.optim.Adam(model.parameters(), lr=1e-3)
    return trained(model, F.cross_entropy, (x,), (at.tokens(10, batch),), optimizer=optimizer)


@workload("recurrent", "a GRU cell in a Python loop over 48 timesteps, inference in fp32, batch 16")
def gru_cell_serve(at: Setting) -> gobrrr.Workload:
    model = made(at, Looped, 32, at.size(256, 8))
    return served(model, at.randn(at.size(16, 2), at.size(48, 5), 32))
