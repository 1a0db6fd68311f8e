"""A small training, bound by launches, that prints what its last steps take: see bench/gpu/after_recording.py."""

from __future__ import annotations

import statistics
import sys
import time

import torch
from torch import nn

EARLY, LATE = 80, 120
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WIDTH, LAYERS, LENGTH, BATCH = (512, 8, 256, 8) if DEVICE == "cuda" else (32, 1, 8, 2)

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.0, batch_first=True)
model = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).to(DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
x = torch.randn(BATCH, LENGTH, WIDTH, device=DEVICE)


def step() -> float:
    with torch.autocast(DEVICE, torch.bfloat16):
        loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def early() -> None:
    how = sys.argv[1]
    if how == "diagnose":
        import gobrrr

        gobrrr.diagnose(step)
    elif how == "watch":
        import gobrrr

        with gobrrr.watch() as steps:
            for _ in range(EARLY):
                step()
                steps.boundary()
        assert steps.done
    else:
        for _ in range(EARLY):
            step()


early()
took = []
for _ in range(LATE):
    begin = time.perf_counter()
    step()
    took.append(time.perf_counter() - begin)
print(f"late {1e3 * statistics.median(took):.3f} ms a step", flush=True)
