"""Language models, a recommender and a recurrent network by hand, as the zoo (`bench.models`) builds them.

A builder returns (model, inputs to be made, loss of the model and the inputs). Shapes: B batch, S sequence.
"""

# mypy: allow-subclassing-any
from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Tensor = Any


def mean_loss(model: Any, *given: Tensor) -> Tensor:
    return model(*given).float().mean()


def label_loss(model: Any, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x).float(), y)


def tokens(vocab: int, *shape: int) -> Tensor:
    return torch.randint(0, vocab, shape)


def heads_of(x: Tensor, size: int) -> Tensor:
    """[B, S, H * size] -> [B, H, S, size]."""
    return x.view(*x.shape[:-1], -1, size).transpose(1, 2)


def joined(x: Tensor) -> Tensor:
    """[B, H, S, D] -> [B, S, H * D]."""
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


class Conv1D(nn.Module):
    """A linear layer with its weight stored [in, out], as GPT-2 has it."""

    def __init__(self, wide: int, out: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(wide, out) * 0.02), nn.Parameter(torch.zeros(out))

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in] -> [..., out]."""
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class BertLayer(nn.Module):
    """Post-norm encoder layer with separate projections, as the library transformers computes it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.size = width // heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.n1, self.n2 = nn.LayerNorm(width, 1e-12), nn.LayerNorm(width, 1e-12)

    def forward(self, x: Tensor) -> Tensor:
        """x: [B, S, width] -> the same."""
        q, k, v = (heads_of(project(x), self.size) for project in (self.q, self.k, self.v))
        rate = 0.1 if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=rate, scale=self.size**-0.5)
        x = self.n1(F.dropout(self.o(joined(y)), 0.1, self.training) + x)
        return self.n2(F.dropout(self.down(F.gelu(self.up(x))), 0.1, self.training) + x)


class Bert(nn.Module):
    """BERT with its pooler (whose output the loss does not use, so that it has no gradient)."""

    def __init__(self, width: int, layers: int, heads: int, vocab: int = 30522, longest: int = 512) -> None:
        super().__init__()
        self.word = nn.Embedding(vocab, width, padding_idx=0)
        self.place, self.kind = nn.Embedding(longest, width), nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, 1e-12)
        self.layers = nn.ModuleList(BertLayer(width, heads) for _ in range(layers))
        self.pooler = nn.Linear(width, width)
        self.register_buffer("positions", torch.arange(longest)[None], persistent=False)
        self.register_buffer("kinds", torch.zeros(1, longest, dtype=torch.long), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """ids: [B, S] -> [B, S, width]."""
        b, s = ids.shape
        positions = self.positions[:, :s]
        kinds = torch.gather(self.kinds.expand(positions.shape[0], -1), 1, positions).expand(b, s)
        x = self.word(ids) + self.kind(kinds) + self.place(positions)
        x = F.dropout(self.norm(x), 0.1, self.training)
        for layer in self.layers:
            x = layer(x)
        torch.tanh(self.pooler(x[:, 0]))
        return x


def bert(width: int, layers: int, heads: int, batch: int, seq: int) -> Any:
    return Bert(width, layers, heads), lambda: (tokens(30522, batch, seq),), mean_loss


class Gpt2Layer(nn.Module):
    """Pre-norm decoder layer with the tanh GELU written out, and the copies that an empty key/value cache makes."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.size, self.width = width // heads, width
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.o = Conv1D(width, 3 * width), Conv1D(width, width)
        self.up, self.down = Conv1D(width, 4 * width), Conv1D(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """x: [B, S, width] -> the same."""
        q, k, v = (heads_of(part, self.size) for part in self.qkv(self.n1(x)).split(self.width, 2))
        k, v = (torch.cat([torch.tensor([], dtype=part.dtype, device=part.device), part], -2) for part in (k, v))
        rate = 0.1 if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=rate, is_causal=True, scale=self.size**-0.5)
        x = F.dropout(self.o(joined(y)), 0.1, self.training) + x
        h = self.up(self.n2(x))
        h = 0.5 * h * (1.0 + torch.tanh(0.7978845608028654 * (h + 0.044715 * torch.pow(h, 3.0))))
        return x + F.dropout(self.down(h), 0.1, self.training)


class Gpt2(nn.Module):
    """GPT-2 with tied embeddings; the loss is over labels shifted by padding, in fp32."""

    def __init__(self, width: int, layers: int, heads: int, vocab: int = 50257, longest: int = 1024) -> None:
        super().__init__()
        self.word, self.place = nn.Embedding(vocab, width), nn.Embedding(longest, width)
        self.layers = nn.ModuleList(Gpt2Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.word.weight

    def forward(self, ids: Tensor) -> Tensor:
        """ids: [B, S] -> the loss of predicting the next of them."""
        positions = (torch.arange(ids.shape[1], device=ids.device) + 0)[None]
        x = F.dropout(self.word(ids) + self.place(positions), 0.1, self.training)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x)).float()
        labels = F.pad(ids, (0, 1), value=-100)[..., 1:].contiguous()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))


def gpt2(width: int, layers: int, heads: int, batch: int, seq: int) -> Any:
    return Gpt2(width, layers, heads), lambda: (tokens(50257, batch, seq),), lambda model, ids: model(ids)


class LlamaLayer(nn.Module):
    """Decoder layer: fused RMSNorm, rotary positions, grouped queries, SwiGLU; a key/value cache when decoding."""

    def __init__(self, width: int, heads: int, groups: int, hidden: int, cache: int) -> None:
        super().__init__()
        self.size, self.repeat = width // heads, heads // groups
        self.n1, self.n2 = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, groups * self.size, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)
        if cache:
            for name in ("keys", "values"):
                self.register_buffer(name, torch.randn(1, groups, cache, self.size), persistent=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, at: Tensor | None) -> Tensor:
        """x: [B, S, width] -> the same; `at`: where in the cache the S = 1 position goes."""
        h = self.n1(x)
        q, k, v = (heads_of(project(h), self.size) for project in (self.q, self.k, self.v))
        q, k = (part * cos + torch.cat([-part[..., self.size // 2 :], part[..., : self.size // 2]], -1) * sin
                for part in (q, k))  # fmt: skip
        if at is not None:
            k, v = self.keys.index_copy_(2, at, k), self.values.index_copy_(2, at, v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=at is None, enable_gqa=self.repeat > 1)
        x = x + self.o(joined(y))
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    """A decoder-only language model; with `cache` it takes one token after that many."""

    def __init__(self, width: int, layers: int, heads: int, groups: int, hidden: int, vocab: int, cache: int) -> None:
        super().__init__()
        self.size, self.cache = width // heads, cache
        self.word = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList(LlamaLayer(width, heads, groups, hidden, cache) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width, 1e-5), nn.Linear(width, vocab, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        """ids: [B, S] -> [B, S, vocab]."""
        start, stop = (self.cache - 1, self.cache) if self.cache else (0, ids.shape[1])
        at = torch.arange(start, stop, device=ids.device)
        x = self.word(ids)
        rates = 10000.0 ** (-torch.arange(0, self.size, 2, device=ids.device).float() / self.size)
        angles = (at[:, None].float() * rates).repeat(1, 2)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin, at if self.cache else None)
        return self.head(self.norm(x))


def llama(batch: int, seq: int, **sizes: int) -> Any:
    def loss(model: Any, ids: Tensor) -> Tensor:
        logits = model(ids)[:, :-1].float()
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))

    return Llama(**sizes), lambda: (tokens(sizes["vocab"], batch, seq),), mean_loss if sizes["cache"] else loss


class Dlrm(nn.Module):
    """A recommender: bags of embeddings, a dense MLP, pairwise products, a top MLP."""

    def __init__(self, tables: int, rows: int, width: int) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                                 nn.Linear(1024, 1))  # fmt: skip

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        """dense: [B, 13], sparse: [tables, B, bag] -> [B, 1]."""
        x = self.bottom(dense)
        every = torch.stack([x, *(bag(ids) for bag, ids in zip(self.bags, sparse, strict=True))], 1)
        products = torch.bmm(every, every.transpose(1, 2))
        row, column = torch.tril_indices(every.shape[1], every.shape[1], -1, device=x.device)
        return self.top(torch.cat([x, products[:, row, column]], 1))


def dlrm(batch: int, tables: int, rows: int, width: int, bag: int) -> Any:
    return Dlrm(tables, rows, width), lambda: (torch.randn(batch, 13), tokens(rows, tables, batch, bag)), mean_loss


class LstmLm(nn.Module):
    """A recurrent language model."""

    def __init__(self, vocab: int, width: int, layers: int) -> None:
        super().__init__()
        self.word, self.head = nn.Embedding(vocab, width), nn.Linear(width, vocab)
        self.core = nn.LSTM(width, width, layers, batch_first=True)

    def logits(self, ids: Tensor) -> Tensor:
        """ids: [B, S] -> [B, S, vocab]."""
        return self.head(self.core(self.word(ids))[0])

    def forward(self, ids: Tensor) -> Tensor:
        """ids: [B, S] -> the loss of predicting the next of them."""
        logits = self.logits(ids)[:, :-1].float()
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))


def lstm(batch: int, seq: int, vocab: int, width: int, layers: int) -> Any:
    return LstmLm(vocab, width, layers), lambda: (tokens(vocab, batch, seq),), lambda model, ids: model(ids)


def mlp(batch: int, width: int, layers: int) -> Any:
    body = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())]
    return nn.Sequential(*body), lambda: (torch.randn(batch, width),), mean_loss
