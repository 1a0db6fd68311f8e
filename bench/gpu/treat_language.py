"""Language models that are to be treated (`bench.gpu.treat`)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import gobrrr
from bench.gpu.pairs_form import Setting
from bench.gpu.treat_form import from_zoo, made, served, workload
from bench.gpu.workloads import GPT


def token_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """[B, T, V] against [B, T]: the mean cross entropy, in fp32."""
    return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), labels.view(-1))


def _gpt(
    at: Setting, *, vocab: int, layers: int, batch: int, sdpa: bool
) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    vocab, longest = at.size(vocab, 67), at.size(1024, 16)
    model = made(at, GPT, V=vocab, d=at.size(768, 32), L=at.size(layers, 1), h=at.size(12, 2), T=longest, sdpa=sdpa)
    batch = at.size(batch, 2)
    # as GPT-2 is initialised: logits of width 28 would make the loss all but a constant
    nn.init.normal_(model.e.weight, std=0.02)
    return model, at.tokens(vocab, batch, longest), at.tokens(vocab, batch, longest)


@workload("GPT training in fp32, TF32 not allowed")
def gpt_fp32(at: Setting) -> gobrrr.Workload:
    model, ids, labels = _gpt(at, vocab=50304, layers=6, batch=4, sdpa=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return gobrrr.Workload(
        model=model, inputs=(ids,), loss=token_loss, targets=(labels,), optimizer=optimizer, name="gpt_fp32"
    )


@workload("GPT training under bf16 autocast, the attention matrix written out")
def gpt_written_attention(at: Setting) -> gobrrr.Workload:
    model, ids, labels = _gpt(at, vocab=50304, layers=8, batch=4, sdpa=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return gobrrr.Workload(
        model=model, inputs=(ids,), loss=token_loss, targets=(labels,), optimizer=optimizer,
        around=(at.autocast,), name="gpt_written_attention",
    )  # fmt: skip


@workload("a nanoGPT-style loop: V = 50257, gradients clipped, AdamW that steps one parameter at a time")
def nanogpt(at: Setting) -> gobrrr.Workload:
    model, ids, labels = _gpt(at, vocab=50257, layers=12, batch=4, sdpa=True)
    decayed = [one for one in model.parameters() if one.dim() > 1]
    others = [one for one in model.parameters() if one.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), foreach=False)

    def step() -> torch.Tensor:
        with at.autocast():
            loss = token_loss(model(ids), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return gobrrr.Workload(model=model, step=step, optimizer=optimizer, name="nanogpt")


@workload("BERT-base inference in bf16, batch 32 of 512")
def bert_base(at: Setting) -> gobrrr.Workload:
    model, inputs = from_zoo(at, "bert_base_b32_s512", torch.bfloat16)
    return served("bert_base", model, *inputs)


@workload("a Llama of 1.1 billion parameters in bf16 over a prompt of 2048")
def llama_prompt(at: Setting) -> gobrrr.Workload:
    model, inputs = from_zoo(at, "llama_small_b8_s1024", torch.bfloat16, batch=1, seq=2048, width=2048, layers=16,
                             heads=32, groups=8, hidden=8192)  # fmt: skip
    return served("llama_prompt", model, *inputs)


@workload("the same Llama, one token after 2048 in a static cache, batch 1")
def llama_decode(at: Setting) -> gobrrr.Workload:
    model, inputs = from_zoo(at, "llama_decode_b1_kv2048", torch.bfloat16)
    return served("llama_decode", model, *inputs)


@workload("the encoder of Whisper small in fp32, batch 4", library=True)
def whisper_encoder(at: Setting) -> gobrrr.Workload:
    model, inputs = from_zoo(at, "whisper_small_encoder_b8", torch.float32, shape=(4, 80, 3000))
    return served("whisper_encoder", model, *inputs)


@workload("T5 small training in bf16 with eager attention, as a closure", library=True)
def t5_training(at: Setting) -> gobrrr.Workload:
    model, (ids, labels) = from_zoo(at, "t5_small_b16_s512", torch.bfloat16, shape=(8, 512, 128))
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> torch.Tensor:
        loss = model(input_ids=ids, labels=labels, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return gobrrr.Workload(model=model, step=step, optimizer=optimizer, name="t5_training")
