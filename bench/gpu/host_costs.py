"""What the host pays to issue one op, by kind, and the shortest kernels: medians and quartiles.

Small operands, so that the device keeps up; a block is `CALLS` calls and a synchronize, not counted.
"""

import json
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from bench.gpu.timed import profiler, quartiles

CALLS, BLOCKS = 100, 25


def timed(call, calls=CALLS, blocks=BLOCKS):
    """Microseconds of host time a call."""
    for _ in range(20):
        call()
    found = []
    for _ in range(blocks):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        found.append((time.perf_counter() - start) * 1e6 / calls)
    torch.cuda.synchronize()
    return quartiles(found)


def backward(build, nodes):
    """Microseconds of host time a node: `build()` gives a scalar whose graph has `nodes` nodes that issue work."""
    found = []
    for _ in range(BLOCKS):
        loss = build()
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss.backward()
        found.append((time.perf_counter() - start) * 1e6 / nodes)
        torch.cuda.synchronize()
    return quartiles(found)


def forward_calls():
    x = torch.randn(16, 64, device="cuda", dtype=torch.bfloat16)
    y, w = torch.randn_like(x), torch.randn(64, 64, device="cuda", dtype=torch.bfloat16)
    fp32 = torch.randn(16, 64, device="cuda")
    linear, norm = nn.Linear(64, 64).cuda().bfloat16(), nn.LayerNorm(64).cuda().bfloat16()
    q = torch.randn(1, 2, 16, 64, device="cuda", dtype=torch.bfloat16)
    image = torch.randn(1, 8, 8, 8, device="cuda", dtype=torch.bfloat16)
    conv, batch = nn.Conv2d(8, 8, 3, padding=1).cuda().bfloat16(), nn.BatchNorm2d(8).cuda().bfloat16()
    ids, table = torch.randint(0, 64, (16,), device="cuda"), nn.Embedding(64, 64).cuda().bfloat16()
    host = torch.randn(64).pin_memory()
    return {
        "python_call": lambda: None, "empty": lambda: torch.empty(64, device="cuda"), "view": lambda: x.view(-1),
        "transpose": lambda: x.t(), "add": lambda: x + y, "add_": lambda: x.add_(1), "mul_scalar": lambda: x * 2,
        "mm": lambda: x @ w, "linear": lambda: F.linear(x, w), "nn.Linear": lambda: linear(x),
        "nn.LayerNorm": lambda: norm(x), "gelu": lambda: F.gelu(x), "softmax": lambda: x.softmax(-1),
        "sum": lambda: x.sum(), "cat": lambda: torch.cat([x, y]), "to_fp32": lambda: x.float(),
        "contiguous": lambda: x.t().contiguous(), "dropout": lambda: F.dropout(x, 0.1, True),
        "sdpa": lambda: F.scaled_dot_product_attention(q, q, q), "nn.Conv2d": lambda: conv(image),
        "nn.BatchNorm2d": lambda: batch(image), "nn.Embedding": lambda: table(ids),
        "cross_entropy": lambda: F.cross_entropy(fp32, ids), "where": lambda: torch.where(x > 0, x, y),
        "copy_to_device_pinned": lambda: host.to("cuda", non_blocking=True), "item": lambda: fp32[0, 0].item(),
        "synchronize": torch.cuda.synchronize,
    }  # fmt: skip


def autocast_calls():
    linear, x = nn.Linear(64, 64).cuda(), torch.randn(16, 64, device="cuda")

    def cached():
        with torch.autocast("cuda", torch.bfloat16):
            for _ in range(10):
                linear(x)

    def entered():
        with torch.autocast("cuda", torch.bfloat16):
            pass

    return {"autocast_10_linears": cached, "autocast_entered": entered}


def backwards():
    x = torch.randn(16, 64, device="cuda", requires_grad=True)
    chain = nn.Sequential(*[nn.Linear(64, 64) for _ in range(50)]).cuda()

    def muls():
        y = x
        for _ in range(100):
            y = y * 1.01
        return y.sum()

    def gelus():
        y = x
        for _ in range(100):
            y = F.gelu(y)
        return y.sum()

    def linears():
        chain.zero_grad(set_to_none=True)
        return chain(x).sum()

    return {"mul_scalar": (muls, 100), "gelu": (gelus, 100), "linear": (linears, 50)}


def optimizers():
    found = {}
    for name, extra in (("foreach", {"foreach": True}), ("fused", {"fused": True}), ("single", {"foreach": False})):
        parameters = [nn.Parameter(torch.randn(64, 64, device="cuda")) for _ in range(200)]
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        optimizer = torch.optim.AdamW(parameters, lr=1e-3, **extra)
        found[f"adamw_{name}_200"] = timed(optimizer.step, calls=1 if name == "single" else 3, blocks=10)
    return found


def shortest_kernels():
    """Device nanoseconds of kernels on almost nothing."""
    single = torch.ones(1, device="cuda")
    other = torch.ones(1, device="cuda")
    calls = {"fill": lambda: single.fill_(1), "add": lambda: single.add_(1), "copy": lambda: single.copy_(other)}
    calls["zero"] = single.zero_
    result = {}
    for name, call in calls.items():
        for _ in range(10):
            call()
        with profiler() as recording:
            for _ in range(200):
                call()
            torch.cuda.synchronize()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "t.json")
            recording.export_chrome_trace(str(path))
            events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
        work = [event["dur"] * 1e3 for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
        result[name] = quartiles(work)
    return result


def measure():
    """All of it: microseconds of the host a call, and nanoseconds of the shortest kernels."""
    found = {"unit": "us", "forward": {}, "with_grad": {}, "autocast": {}, "backward": {}}
    with torch.no_grad():
        for name, call in forward_calls().items():
            found["forward"][name] = timed(call)
    for name, call in forward_calls().items():
        if name.startswith(("nn.", "add_")) and name != "add_":
            found["with_grad"][name] = timed(call)
    leaf = torch.randn(16, 64, device="cuda", requires_grad=True)
    found["with_grad"]["mul_scalar"] = timed(lambda: leaf * 2)
    found["with_grad"]["gelu"] = timed(lambda: F.gelu(leaf))
    for name, call in autocast_calls().items():
        found["autocast"][name] = timed(call, calls=20)
    for name, (build, nodes) in backwards().items():
        found["backward"][name] = backward(build, nodes)
    found["optimizer"] = optimizers()
    found["shortest_kernels_ns"] = shortest_kernels()
    return found
