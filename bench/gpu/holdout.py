"""Steps that nothing was fitted to: their times without the profiler, and their traces.

Run on a GPU machine: `python bench/gpu/holdout.py OUT`. Writes OUT/holdout.json (times, device, versions, command) and
OUT/traces.tar (one trace of three steps a workload). `bench/accuracy.py` then holds gobrrr's estimates against them.
Every workload uses random weights; none needs a download. A workload that fails is recorded with its error.
"""

from __future__ import annotations

import statistics
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from bench.gpu.pairs_form import Setting, inference, training
from bench.gpu.pairs_models import layers
from bench.gpu.timed import about, attempted, keep, pipelined_ms, synced_ms, trace_steps, wait

WARMUP, STEPS = 5, 20


ON_GPU = Setting("cuda")


def stack(width: int, depth: int, heads: int) -> nn.Module:
    return layers(ON_GPU, width, depth, heads, causal=True)


def trainer(model, make_input, optimizer, *, amp=True, item=False, clip=False):
    def step():
        with ON_GPU.autocast(amp):
            loss = model(make_input()).float().square().mean()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item() if item else loss

    return step


def wide_training():
    m = stack(2048, 6, 16)
    x = torch.randn(4, 2048, 2048, device="cuda")
    return trainer(m, lambda: x, torch.optim.AdamW(m.parameters(), fused=True))


def narrow_training_item():
    m = stack(256, 8, 4)
    x = torch.randn(8, 64, 256, device="cuda")
    return trainer(m, lambda: x, torch.optim.AdamW(m.parameters()), item=True, clip=True)


def foreach_off():
    m = stack(512, 8, 8)
    x = torch.randn(16, 256, 512, device="cuda")
    return trainer(m, lambda: x, torch.optim.AdamW(m.parameters(), foreach=False))


def tf32_training():
    torch.set_float32_matmul_precision("high")
    m = stack(1024, 8, 16)
    x = torch.randn(8, 1024, 1024, device="cuda")
    return trainer(m, lambda: x, torch.optim.AdamW(m.parameters()), amp=False)


def resnet_nchw():
    import timm

    m = timm.create_model("resnet50").cuda()
    x, y = torch.randn(128, 3, 224, 224, device="cuda"), torch.randint(0, 1000, (128,), device="cuda")
    o = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    return training(ON_GPU, lambda: F.cross_entropy(m(x), y), o)


def convnext_inference():
    import timm

    m = timm.create_model("convnext_base").cuda().eval().to(torch.float16)
    x = torch.randn(64, 3, 224, 224, device="cuda", dtype=torch.float16)
    return inference(lambda: m(x))


def lstm_cells():
    cell = nn.LSTMCell(512, 512).cuda()
    x = torch.randn(100, 64, 512, device="cuda")

    @torch.no_grad()
    def step():
        h = c = torch.zeros(64, 512, device="cuda")
        for t in range(100):
            h, c = cell(x[t], (h, c))
        return h

    return step


def cudnn_lstm():
    m = nn.LSTM(1024, 1024, num_layers=4, batch_first=True).cuda()
    x = torch.randn(64, 256, 1024, device="cuda")
    return lambda: m(x)[0].sum().backward()


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=16, num_attention_heads=32,
                         num_key_value_heads=8, vocab_size=32000)  # fmt: skip
    return LlamaForCausalLM(config).cuda().to(torch.bfloat16).eval()


def llama_decode():
    m = llama()
    ids = torch.randint(0, 32000, (1, 512), device="cuda")
    with torch.inference_mode():
        cache = m(ids, use_cache=True).past_key_values
    token = torch.randint(0, 32000, (1, 1), device="cuda")

    @torch.inference_mode()
    def step():
        out = m(token, past_key_values=cache, use_cache=True)
        cache.crop(-1)
        return out.logits

    return step


def llama_prefill():
    m, ids = llama(), torch.randint(0, 32000, (4, 2048), device="cuda")
    return inference(lambda: m(ids, use_cache=False).logits)


def t5_training():
    from transformers import T5Config, T5ForConditionalGeneration

    m = T5ForConditionalGeneration(
        T5Config(d_model=512, num_layers=6, num_heads=8, d_ff=2048, decoder_start_token_id=0)
    ).cuda()
    ids, labels = torch.randint(0, 32000, (16, 256), device="cuda"), torch.randint(0, 32000, (16, 64), device="cuda")
    return training(ON_GPU, lambda: m(input_ids=ids, labels=labels).loss, torch.optim.AdamW(m.parameters()))


def masked_select_loss():
    m = stack(768, 4, 12)
    head = nn.Linear(768, 32000).cuda()
    x, y = torch.randn(16, 512, 768, device="cuda"), torch.randint(0, 32000, (16, 512), device="cuda")
    o = torch.optim.AdamW([*m.parameters(), *head.parameters()])

    def step():
        mask = torch.rand(16, 512, device="cuda") < 0.15
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(head(m(x)[mask]).float(), y[mask])
        loss.backward()
        o.step()
        o.zero_grad(set_to_none=True)

    return step


def pinned_loader():
    m = stack(1024, 6, 16)
    host = torch.randn(8, 1024, 1024).pin_memory()
    return trainer(m, lambda: host.to("cuda", non_blocking=True), torch.optim.AdamW(m.parameters(), fused=True))


def dataset_workers(workers: int):
    class Samples(torch.utils.data.Dataset):
        def __len__(self):
            return 100_000

        def __getitem__(self, index):
            x = torch.randn(3, 224, 224)
            for _ in range(4):
                x = (x - x.mean((1, 2), keepdim=True)) / x.std((1, 2), keepdim=True)
            return x

    import timm

    m = timm.create_model("resnet18").cuda()
    o = torch.optim.SGD(m.parameters(), 0.1)
    batches = iter(torch.utils.data.DataLoader(Samples(), 32, num_workers=workers, pin_memory=workers > 0))

    def step():
        x = next(batches).to("cuda", non_blocking=True)
        with ON_GPU.autocast():
            loss = m(x).square().mean()
        loss.backward()
        o.step()
        o.zero_grad(set_to_none=True)

    return step


def compiled_training():
    m = torch.compile(stack(1024, 6, 16))
    x = torch.randn(8, 1024, 1024, device="cuda")
    return trainer(m, lambda: x, torch.optim.AdamW(m.parameters(), fused=True))


def compiled_graphs():
    m = torch.compile(stack(512, 12, 8).eval(), mode="reduce-overhead")
    x = torch.randn(4, 128, 512, device="cuda")

    @torch.inference_mode()
    def step():
        with torch.autocast("cuda", torch.bfloat16):
            return m(x).clone()

    return step


def rms_eager():
    w = torch.randn(4096, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(16384, 4096, device="cuda", dtype=torch.bfloat16)

    @torch.inference_mode()
    def step():
        y = x
        for _ in range(8):
            z = y.float()
            y = (z * torch.rsqrt(z.square().mean(-1, keepdim=True) + 1e-6)).to(torch.bfloat16) * w
        return y

    return step


def big_matmuls():
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))

    def step():
        y = a
        for _ in range(8):
            y = y @ b
        return y

    return step


def odd_matmuls():
    a, b = (
        torch.randn(8191, 4095, device="cuda", dtype=torch.bfloat16),
        torch.randn(4095, 8191, device="cuda", dtype=torch.bfloat16),
    )

    def step():
        for _ in range(4):
            y = a @ b
        return y

    return step


WORKLOADS = {
    "wide_training": wide_training, "narrow_training_item": narrow_training_item, "foreach_off": foreach_off,
    "tf32_training": tf32_training, "resnet_nchw": resnet_nchw, "convnext_inference": convnext_inference,
    "lstm_cells": lstm_cells, "cudnn_lstm": cudnn_lstm, "llama_decode": llama_decode, "llama_prefill": llama_prefill,
    "t5_training": t5_training, "masked_select_loss": masked_select_loss, "pinned_loader": pinned_loader,
    "loader_workers_0": lambda: dataset_workers(0), "loader_workers_8": lambda: dataset_workers(8),
    "compiled_training": compiled_training, "compiled_graphs": compiled_graphs, "rms_eager": rms_eager,
    "big_matmuls": big_matmuls, "odd_matmuls": odd_matmuls,
}  # fmt: skip


def timed(step) -> dict[str, float]:
    """Milliseconds a step: with a synchronize behind each (median, quartiles), and in a loop that runs ahead."""
    synced = synced_ms(step, STEPS)
    pipelined = pipelined_ms(step, STEPS)
    low, _, high = statistics.quantiles(synced, n=4)
    return {"sync_ms": statistics.median(synced), "sync_low_ms": low, "sync_high_ms": high, "pipelined_ms": pipelined}


def cache_bandwidth() -> list[dict[str, float]]:
    """Copy and read bandwidth by working set, in a CUDA graph of 200 launches so that launching costs nothing."""
    rows = []
    for megabytes in (0.5, 1, 2, 4, 8, 12, 16, 20, 24, 32, 48, 64, 96, 128, 256, 512):
        n = int(megabytes * 1e6 / 2 / 4)
        x, y = torch.randn(n, device="cuda"), torch.empty(n, device="cuda")
        row = {"megabytes": megabytes}
        for name, call in (("copy", lambda x=x, y=y: torch.mul(x, 2.0, out=y)),):
            for _ in range(3):
                call()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(200):
                    call()
            times = []
            for _ in range(5):
                a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                a.record()
                graph.replay()
                b.record()
                b.synchronize()
                times.append(a.elapsed_time(b) / 200 * 1e-3)
            row[f"{name}_us"] = statistics.median(times) * 1e6
            row[f"{name}_GBps"] = 2 * n * 4 / statistics.median(times) / 1e9
        rows.append(row)
    return rows


def measured(name: str, traces: Path) -> dict[str, Any]:
    """One workload: its times before and after its trace."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    step = WORKLOADS[name]()
    for _ in range(WARMUP):
        step()
    wait()
    row = timed(step)
    trace_steps(step, traces / f"{name}.json.gz")
    return {**row, "again": timed(step)}


def main() -> None:
    out = Path(sys.argv[1])
    wanted = sys.argv[2:] or list(WORKLOADS)
    traces = Path(tempfile.mkdtemp())
    result = about("python bench/gpu/holdout.py OUT", cache=cache_bandwidth(), workloads={})
    for name in wanted:
        begin = time.time()
        row = result["workloads"][name] = attempted(measured, name, traces)
        print(name, f"{time.time() - begin:.1f} s", row, flush=True)
        keep(out / "holdout.json", result)
        with tarfile.open(out / "traces.tar", "w") as archive:
            for path in sorted(traces.iterdir()):
                archive.add(path, path.name)


if __name__ == "__main__":
    main()
