"""Models of the library transformers, with random weights."""

from __future__ import annotations

from typing import Any

import torch

import gobrrr
from bench.gpu.pairs_form import Setting
from bench.gpu.treatment_workloads.form import made, served, workload


def t5(at: Setting, kind: str, **config: Any) -> Any:
    """A class of T5 in the small model's proportions."""
    from transformers import T5Config

    sizes = {"d_model": at.size(512, 32), "d_kv": at.size(64, 8), "d_ff": at.size(1024, 64),
             "num_heads": at.size(8, 4), "vocab_size": at.size(32128, 67), "decoder_start_token_id": 0}  # fmt: skip
    home = __import__("transformers")
    return made(at, getattr(home, kind), T5Config(**{**sizes, **config}))


def pairs(at: Setting, batch: int, source: int, target: int) -> tuple[Any, Any]:
    """Texts and what they become."""
    vocab, count = at.size(32128, 67), at.size(batch, 2)
    return at.tokens(vocab, count, at.size(source, 8)), at.tokens(vocab, count, at.size(target, 4))


def t5_step(at: Setting, model: Any, ids: Any, labels: Any, amp: bool) -> gobrrr.Workload:
    """A step as people write it: the model computes its loss itself."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> Any:
        with at.autocast(amp):
            loss = model(input_ids=ids, labels=labels, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return gobrrr.Workload(model=model, step=step, optimizer=optimizer)


@workload("t5", "T5 of 4 + 4 layers training in fp32 as a closure, batch 8 of 256 to 64, AdamW")
def t5_train(at: Setting) -> gobrrr.Workload:
    layers = at.size(4, 1)
    model = t5(at, "T5ForConditionalGeneration", num_layers=layers, num_decoder_layers=layers, dropout_rate=0.0)
    return t5_step(at, model, *pairs(at, 8, 256, 64), amp=False)


@workload("t5", "T5 of 2 + 2 layers training under bf16 autocast with dropout, batch 32 of 128 to 32", typed=True)
def t5_short_train_amp(at: Setting) -> gobrrr.Workload:
    layers = at.size(2, 1)
    model = t5(at, "T5ForConditionalGeneration", num_layers=layers, num_decoder_layers=layers)
    return t5_step(at, model, *pairs(at, 32, 128, 32), amp=True)


@workload("t5", "the encoder of T5, 6 layers, inference in fp32, batch 4 of 256")
def t5_encoder_serve(at: Setting) -> gobrrr.Workload:
    ids, _ = pairs(at, 4, 256, 8)
    return served(t5(at, "T5EncoderModel", num_layers=at.size(6, 1)), ids)
