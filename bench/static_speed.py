"""How long the static door takes: a training step of Llama 3 70B and of Llama 3.2 1B, from their configs.

    python -m bench.static_speed        # torch and transformers needed, no GPU

Each is built on meta, run once on fake tensors (forward, backward, AdamW) and predicted on an H100. The best of three
in a process that has torch and transformers loaded. Writes bench/results/static_speed.json.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import gobrrr
from bench import pages
from gobrrr import api
from gobrrr.doors import prediction

TARGET = pages.RESULTS / "static_speed.json"
TIMES = 3
TOKENS = 2048

MODELS: dict[str, dict[str, int]] = {
    "Llama 3.2 1B": {
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128256,
    },
    "Llama 3 70B": {
        "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
        "num_key_value_heads": 8, "vocab_size": 128256,
    },
}  # fmt: skip


def measured(sizes: dict[str, int]) -> dict[str, Any]:
    """Seconds to record and to predict one training step, and what came out."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(**sizes)).to(torch.bfloat16).train()
        ids = torch.randint(0, 1000, (1, TOKENS))
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    best: dict[str, Any] = {}
    for _ in range(TIMES):
        begin = time.perf_counter()
        recording = api.record(step)
        middle = time.perf_counter()
        found = prediction.predict(recording, [gobrrr.machine("h100")])
        end = time.perf_counter()
        if not best or end - begin < best["total_s"]:
            best = {"record_s": middle - begin, "predict_s": end - middle, "total_s": end - begin}
    best = {key: round(value, 2) for key, value in best.items()}
    return {
        **best, "calls": len(recording.calls), "flop_model": found.totals.flop_model,
        "step_ns": found.unprofiled_wall_ns.value, "peak_bytes": recording.peak_bytes, "fits": found.machines[0].fits,
    }  # fmt: skip


def main() -> int:
    """Measure both and write the results."""
    import torch
    import transformers

    rows = {}
    for name, sizes in MODELS.items():
        rows[name] = measured(sizes)
        print(name, rows[name])
    found = {
        "command": "python -m bench.static_speed", "date": pages.today(), "tokens": TOKENS,
        "cores": os.cpu_count(), "torch": torch.__version__, "transformers": transformers.__version__, "rows": rows,
    }  # fmt: skip
    pages.write(TARGET, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
