"""Transformers by hand: images, language models, encoders."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import gobrrr
from bench import networks, vision
from bench.gpu.pairs_form import Setting
from bench.gpu.treatment_workloads.form import made, served, token_loss, trained, workload
from bench.gpu.workloads import GPT


def vit(at: Setting, width: int, layers: int) -> Any:
    """A vision transformer with heads of 64."""
    width, layers = at.size(width, 64), at.size(layers, 1)
    return made(at, lambda: vision.vit(width, layers, width // 64, 1)[0])


def gpt(at: Setting, *, width: int, layers: int, vocab: int, seq: int, sdpa: bool = True) -> Any:
    """A GPT with its weights initialised as GPT-2's, so that the loss is not a constant."""
    width, longest = at.size(width, 32), at.size(seq, 16)
    model = made(at, GPT, V=at.size(vocab, 67), d=width, L=at.size(layers, 1), h=at.size(width // 64, 2), T=longest,
                 sdpa=sdpa)  # fmt: skip
    nn.init.normal_(model.e.weight, std=0.02)
    return model


def texts(at: Setting, vocab: int, batch: int, seq: int) -> tuple[Any, Any]:
    """Tokens and the labels of each."""
    vocab, shape = at.size(vocab, 67), (at.size(batch, 2), at.size(seq, 16))
    return at.tokens(vocab, *shape), at.tokens(vocab, *shape)


class Classifier(nn.Module):
    """BERT with a head over the first token."""

    def __init__(self, width: int, layers: int, heads: int, classes: int) -> None:
        super().__init__()
        self.body, self.head = networks.Bert(width, layers, heads), nn.Linear(width, classes)

    def forward(self, ids: Any) -> Any:
        """ids: [B, S] -> [B, classes]."""
        return self.head(self.body(ids)[:, 0])


@workload("vit", "ViT-S/16 training in fp32, batch 64, AdamW")
def vit_small_train(at: Setting) -> gobrrr.Workload:
    x, y = at.randn(at.size(64, 1), 3, 224, 224), at.tokens(1000, at.size(64, 1))
    return trained(vit(at, 384, 8), F.cross_entropy, (x,), (y,))


@workload("vit", "ViT-B/16 training under bf16 autocast, batch 48, AdamW", typed=True)
def vit_base_train_amp(at: Setting) -> gobrrr.Workload:
    x, y = at.randn(at.size(48, 1), 3, 224, 224), at.tokens(1000, at.size(48, 1))
    return trained(vit(at, 768, 8), F.cross_entropy, (x,), (y,), around=(at.autocast,))


@workload("vit", "ViT-S/16 inference in fp32, one image")
def vit_small_serve_one(at: Setting) -> gobrrr.Workload:
    return served(vit(at, 384, 12), at.randn(1, 3, 224, 224))


@workload("gpt", "GPT of 6 layers of 512 training in fp32, batch 8 of 512, AdamW")
def gpt_train(at: Setting) -> gobrrr.Workload:
    ids, labels = texts(at, 32000, 8, 512)
    return trained(gpt(at, width=512, layers=6, vocab=32000, seq=512), token_loss, (ids,), (labels,))


@workload("gpt", "GPT of 6 layers of 768 training under bf16 autocast, attention written out, batch 6 of 1024",
          typed=True)  # fmt: skip
def gpt_written_train_amp(at: Setting) -> gobrrr.Workload:
    ids, labels = texts(at, 50304, 6, 1024)
    model = gpt(at, width=768, layers=6, vocab=50304, seq=1024, sdpa=False)
    return trained(model, token_loss, (ids,), (labels,), around=(at.autocast,))


@workload("gpt", "a small GPT training in fp32: 8 layers of 256, batch 4 of 128, gradients clipped")
def gpt_small_train(at: Setting) -> gobrrr.Workload:
    ids, labels = texts(at, 8000, 4, 128)
    model = gpt(at, width=256, layers=8, vocab=8000, seq=128).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> Any:
        loss = token_loss(model(ids), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return gobrrr.Workload(model=model, step=step, optimizer=optimizer)


@workload("gpt", "a Llama-like model of 8 layers of 1024 over a prompt of 8 x 512 in bf16", typed=True)
def gpt_prompt_serve(at: Setting) -> gobrrr.Workload:
    sizes = {"width": at.size(1024, 64), "layers": at.size(8, 1), "heads": at.size(16, 4), "groups": at.size(4, 2),
             "hidden": at.size(2816, 128), "vocab": at.size(32000, 67), "cache": 0}  # fmt: skip
    model = made(at, networks.Llama, **sizes).to(torch.bfloat16)
    return served(model, texts(at, 32000, 8, 512)[0])


@workload("bert", "BERT-like classifier of 6 layers of 768 training in fp32, batch 32 of 128, dropout, AdamW")
def bert_classify_train(at: Setting) -> gobrrr.Workload:
    ids, _ = texts(at, 30000, 32, 128)
    model = made(at, Classifier, at.size(768, 64), at.size(6, 1), at.size(12, 2), 4)
    return trained(model, F.cross_entropy, (ids,), (at.tokens(4, len(ids)),))


@workload("bert", "BERT-base inference in fp32, one text of 128")
def bert_serve_one(at: Setting) -> gobrrr.Workload:
    ids, _ = texts(at, 30000, 1, 128)
    return served(made(at, Classifier, at.size(768, 64), at.size(12, 1), at.size(12, 2), 4), ids[:1])


@workload("bert", "BERT-like inference of 8 layers in fp32, batch 32 of 384")
def bert_serve(at: Setting) -> gobrrr.Workload:
    ids, _ = texts(at, 30000, 32, 384)
    return served(made(at, Classifier, at.size(768, 64), at.size(8, 1), at.size(12, 2), 4), ids)
