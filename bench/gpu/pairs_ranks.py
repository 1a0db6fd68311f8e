"""Pairs of several GPUs of one host, a process for each."""

from __future__ import annotations

import datetime
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from bench.gpu.pairs_form import Recipe, Setting, Step, training
from bench.gpu.pairs_measure import FORMS, WARMUP, made, measured
from bench.gpu.pairs_models import layers

LONGEST_S = 150
"""A rank that waits for the other for ever is ended."""

STEPS = 20
"""In a timing: the ranks must do the same number of steps, however fast each of them is."""


def replicas(setting: Setting, overlapped: bool) -> Step:
    """A small transformer on each rank; gradients reduced one by one behind the backward pass, or in buckets in it."""
    width = setting.size(768, 32)
    model = layers(setting, width, setting.size(3, 1), setting.size(12, 2))
    x = setting.randn(setting.size(16, 2), setting.size(256, 8), width)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    if overlapped:
        devices = [torch.cuda.current_device()] if setting.device == "cuda" else None
        parallel = torch.nn.parallel.DistributedDataParallel(
            model, device_ids=devices, static_graph=True, gradient_as_bucket_view=True
        )
        return training(setting, lambda: parallel(x).float().square().mean(), optimizer)
    world = dist.get_world_size()

    def step() -> None:
        with setting.autocast():
            loss = model(x).float().square().mean()
        loss.backward()
        for weight in model.parameters():
            dist.all_reduce(weight.grad)
            weight.grad.div_(world)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


RECIPES = (
    Recipe(
        "gradients_one_by_one", "an all-reduce for each gradient, behind the backward pass", "communication", ("N01",),
        ("comm-overlap",), lambda s: replicas(s, overlapped=False), lambda s: replicas(s, overlapped=True), ranks=2,
    ),
)  # fmt: skip


def worker(rank: int, name: str, setting: Setting, folder: str, traces: str) -> None:
    """One rank: measures both forms in step with the others and leaves its row in the folder."""
    (recipe,) = [recipe for recipe in RECIPES if recipe.name == name]
    on_gpu = setting.device == "cuda"
    if on_gpu:
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(1)
    dist.init_process_group(
        "nccl" if on_gpu else "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=recipe.ranks,
        timeout=datetime.timedelta(seconds=60), device_id=torch.device("cuda", rank) if on_gpu else None,
    )  # fmt: skip
    try:
        makers = dict(zip(FORMS, (recipe.faulty, recipe.fixed), strict=True))
        many = 3 if setting.tiny else STEPS
        bench = made(setting, makers, warmup=WARMUP, lead=recipe.lead, meet=dist.barrier, many=many)
        rows = measured(bench, lambda form: Path(traces) / f"{name}.{form}.rank{rank}.json.gz")
        (Path(folder) / f"{rank}.json").write_text(json.dumps({"steps": many, "rows": rows}), encoding="utf-8")
    finally:
        dist.destroy_process_group()


def measured_ranks(recipe: Recipe, setting: Setting, traces: Path) -> dict[str, Any]:
    """Both forms on all ranks: by form the ranks' rows."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = (recipe.name, setting, folder, str(traces))
        context = mp.start_processes(worker, arguments, nprocs=recipe.ranks, join=False, start_method="spawn")
        try:
            end = time.monotonic() + LONGEST_S
            while not context.join(timeout=1.0):
                if time.monotonic() > end:
                    raise TimeoutError(f"the ranks took more than {LONGEST_S} s")
        finally:
            for process in context.processes:
                if process.is_alive():
                    process.kill()
        found = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(recipe.ranks)]
    forms = {form: {"ranks": [rank_rows["rows"][form] for rank_rows in found]} for form in FORMS}
    return {"steps": found[0]["steps"], **forms}
