"""Workloads for a CPU: the same kinds of networks, at sizes that people run there."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import gobrrr
from bench import networks, vision
from bench.gpu.pairs_form import Setting
from bench.gpu.treatment_workloads import convolution, decoding, graphs, language, loading, recurrent, tables
from bench.gpu.treatment_workloads.audio import WaveNet
from bench.gpu.treatment_workloads.form import made, served, sgd, token_loss, trained, workload
from bench.gpu.workloads import MoE


@workload("convolution", "ResNet-26 training on a CPU in fp32, batch 8 of 96 x 96, SGD", device="cpu")
def cpu_resnet_train(at: Setting) -> gobrrr.Workload:
    x, y = convolution.images(at, 8, 96)
    model = convolution.resnet(at, (2, 2, 2, 2))
    return trained(model, F.cross_entropy, (x,), (y,), optimizer=sgd(model))


@workload("convolution", "MobileNetV2-like inference on a CPU in fp32, one image", device="cpu")
def cpu_mobilenet_serve_one(at: Setting) -> gobrrr.Workload:
    side = at.size(160, 32)
    model = made(at, lambda: vision.mbconv(1, convolution.MOBILE[: at.size(5, 2)], False)[0])
    return served(model, at.randn(1, 3, side, side))


@workload("vit", "a small vision transformer's inference on a CPU in fp32, batch 2", device="cpu")
def cpu_vit_serve(at: Setting) -> gobrrr.Workload:
    return served(language.vit(at, 192, 6), at.randn(at.size(2, 1), 3, 224, 224))


@workload("gpt", "a small GPT training on a CPU in fp32: 4 layers of 256, batch 4 of 128, AdamW", device="cpu")
def cpu_gpt_train(at: Setting) -> gobrrr.Workload:
    ids, labels = language.texts(at, 4000, 4, 128)
    return trained(language.gpt(at, width=256, layers=4, vocab=4000, seq=128), token_loss, (ids,), (labels,))


@workload("bert", "BERT-like inference of 4 layers of 384 on a CPU in fp32, one text of 128", device="cpu")
def cpu_bert_serve_one(at: Setting) -> gobrrr.Workload:
    ids, _ = language.texts(at, 30000, 1, 128)
    return served(made(at, language.Classifier, at.size(384, 64), at.size(4, 1), at.size(6, 2), 4), ids[:1])


@workload("recurrent", "an LSTM language model training on a CPU in fp32: 1 layer of 256, batch 8 of 32", device="cpu")
def cpu_lstm_train(at: Setting) -> gobrrr.Workload:
    vocab = at.size(2000, 50)
    ids = at.tokens(vocab, at.size(8, 2), at.size(32, 4))
    model = made(at, recurrent.LanguageModel, vocab, at.size(256, 16), 1)
    return trained(model, token_loss, (ids,), (ids.roll(-1, 1).contiguous(),))


@workload("recurrent", "a GRU cell in a Python loop over 64 timesteps on a CPU, batch 8", device="cpu")
def cpu_gru_cell_serve(at: Setting) -> gobrrr.Workload:
    return served(made(at, recurrent.Looped, 32, at.size(128, 8)), at.randn(at.size(8, 2), at.size(64, 5), 32))


@workload("recommender", "an embedding each of 26 columns and a deep network training on a CPU, batch 512, AdamW",
          device="cpu")  # fmt: skip
def cpu_wide_and_deep_train(at: Setting) -> gobrrr.Workload:
    columns, records, batch = at.size(26, 3), at.size(10_000, 50), at.size(512, 4)
    model = made(at, tables.WideAndDeep, columns, records, at.size(16, 4), at.size(256, 8))
    given = at.randn(batch, 13), at.tokens(records, batch, columns)
    return trained(model, F.binary_cross_entropy_with_logits, given, (torch.rand_like(given[0][:, 0]),))


@workload("recommender", "DLRM inference on a CPU in fp32, batch 64", device="cpu")
def cpu_dlrm_serve(at: Setting) -> gobrrr.Workload:
    count, records, batch = at.size(16, 3), at.size(10_000, 50), at.size(64, 4)
    return served(made(at, networks.Dlrm, count, records, 32), at.randn(batch, 13), at.tokens(records, count, batch, 4))


@workload("tabular", "a network of 4 layers of 256 with batch norm and dropout training on a CPU, batch 256, AdamW",
          device="cpu")  # fmt: skip
def cpu_tabular_train(at: Setting) -> gobrrr.Workload:
    batch, hidden = at.size(256, 4), at.size(256, 8)
    model = made(at, tables.dense, (64, hidden, hidden, hidden, 2), True, 0.1)
    return trained(model, F.cross_entropy, (at.randn(batch, 64),), (at.tokens(2, batch),))


@workload("tabular", "a transformer over 24 columns training on a CPU in fp32, batch 64, AdamW", device="cpu")
def cpu_tabular_transformer_train(at: Setting) -> gobrrr.Workload:
    batch, columns = at.size(64, 4), at.size(24, 5)
    model = made(at, tables.FeatureTransformer, columns, at.size(96, 8), at.size(2, 1))
    return trained(model, F.cross_entropy, (at.randn(batch, columns),), (at.tokens(2, batch),))


@workload("agent", "an update of PPO on a minibatch of 64 on a CPU, hidden layers of 64, Adam", device="cpu")
def cpu_ppo_train(at: Setting) -> gobrrr.Workload:
    return tables.ppo(at, 64, 64)


@workload("graph", "GraphSAGE of 3 layers on 2,000 nodes and 20,000 edges training on a CPU, AdamW", device="cpu")
def cpu_sage_train(at: Setting) -> gobrrr.Workload:
    model, x = graphs.network(at, graphs.MeanConvolution, 2000, 20_000, 64)
    return trained(model, F.cross_entropy, (x,), (at.tokens(16, len(x)),))


@workload("experts", "a mixture of 16 experts that loops over them on a CPU, inference in fp32, 128 tokens",
          device="cpu")  # fmt: skip
def cpu_moe_loop_serve(at: Setting) -> gobrrr.Workload:
    width = at.size(256, 16)
    return served(made(at, MoE, d=width, E=at.size(16, 4)), at.randn(at.size(128, 8), width))


@workload("audio", "a WaveNet of 8 gated layers over a quarter of a second on a CPU, batch 1", device="cpu")
def cpu_wavenet_serve_one(at: Setting) -> gobrrr.Workload:
    return served(made(at, WaveNet, at.size(32, 4), at.size(8, 2)), at.randn(1, 1, at.size(4000, 600)))


@workload("decoding", "one token of a small Llama-like model of 4 layers of 256 after 128 on a CPU", device="cpu")
def cpu_decode_one(at: Setting) -> gobrrr.Workload:
    return served(decoding.llama(at, 256, 4, 128, torch.float32), at.tokens(at.size(32000, 67), 1, 1))


@workload("loading", "a small convolutional network on a CPU, fed by a DataLoader without workers, batch 16",
          device="cpu")  # fmt: skip
def cpu_photographs_train(at: Setting) -> gobrrr.Workload:
    def network() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(),
                             nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 1000))  # fmt: skip

    return trained(made(at, network), F.cross_entropy, (), (), loader=loading.photographs(at, 16, 128))


@workload("loading", "a network on a table on a CPU whose rows come one by one from a DataLoader, batch 128",
          device="cpu")  # fmt: skip
def cpu_rows_train(at: Setting) -> gobrrr.Workload:
    return trained(made(at, tables.dense, (192, at.size(128, 8), 2)), F.cross_entropy, (), (),
                   loader=loading.rows(at.size(128, 4)))  # fmt: skip
