"""A recording leaves the user's program as it was: weights, gradients, optimizer, settings; it trains on as before."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from gobrrr.errors import UsageError  # noqa: E402
from gobrrr.observe.static import record, record_target  # noqa: E402

pytestmark = pytest.mark.torch


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)
        self.calls = 0
        self.hidden: Any = None

    def forward(self, x: Any) -> Any:
        self.calls += 1
        self.hidden = F.dropout(F.relu(self.norm(self.first(x))), 0.2, self.training)
        return self.last(self.hidden)


class Program:
    """A real model with everything around it, two steps old."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = Network()
        self.scale = torch.randn(4, requires_grad=True)  # in no module
        self.optimizer = torch.optim.AdamW([*self.model.parameters(), self.scale], lr=1e-3)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 10)
        self.scaler = torch.amp.GradScaler("cpu")
        self.inputs = torch.randn(6, 8), torch.randint(0, 4, (6,))
        self.step(*self.inputs)
        self.step(*self.inputs)
        self.model(self.inputs[0]).sum().backward()
        self.model.eval()

    def step(self, x: Any, y: Any) -> Any:
        self.model.train()
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x) * self.scale, y)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        return loss

    def state(self) -> dict[str, Any]:
        """Everything that can be compared, tensors copied."""
        model, optimizer = self.model, self.optimizer
        weights = [*model.parameters(), self.scale]
        return {
            "weights": [(id(one), one.detach().clone(), one.requires_grad, type(one)) for one in weights],
            "gradients": [(id(one.grad), None if one.grad is None else one.grad.clone()) for one in weights],
            "buffers": {name: one.clone() for name, one in model.named_buffers()},
            "attributes": (model.calls, id(model.hidden), [one.training for one in model.modules()], set(vars(model))),
            "moments": [{name: copied(one) for name, one in optimizer.state[weight].items()} for weight in weights],
            "options": [
                {name: one for name, one in group.items() if name != "params"} for group in optimizer.param_groups
            ],
            "scheduler": {name: one for name, one in vars(self.scheduler).items() if name != "optimizer"},
            "scaler": self.scaler.state_dict(),
        }


def copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def settings() -> dict[str, Any]:
    return {
        "random": (torch.get_rng_state(), random.getstate()),
        "defaults": (torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled()),
        "backends": (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.benchmark),
        "precision": torch.get_float32_matmul_precision(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "path": list(sys.path),
        "filters": list(warnings.filters),
        "cuda": {name: id(one) for name, one in vars(torch.cuda).items()},
        "functions": (id(F.scaled_dot_product_attention), id(torch.Generator), id(torch.is_autocast_enabled)),
        "modules": {name: id(one) for name, one in vars(nn.Module).items()},
        "hooks": (len(nn.modules.module._global_forward_hooks), len(nn.modules.module._global_forward_pre_hooks)),
        "modes": (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()),
    }


def differences(old: Any, new: Any, where: str = "") -> list[str]:
    """Paths at which two nested values differ."""
    if isinstance(old, torch.Tensor):
        return [] if type(new) is type(old) and torch.equal(old, new) else [where]
    if isinstance(old, dict) and old.keys() == new.keys():
        return [found for key in old for found in differences(old[key], new[key], f"{where}.{key}")]
    if isinstance(old, list | tuple) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [found for at, (one, other) in pairs for found in differences(one, other, f"{where}.{at}")]
    return [] if old == new else [where]


def training(program: Program) -> Callable[..., Any]:
    return program.step


def failing(program: Program) -> Callable[..., Any]:
    def step(x: Any, y: Any) -> None:
        program.step(x, y)
        program.model.first.weight.requires_grad_(False)
        program.model.extra = 1
        program.model.half()
        program.optimizer.param_groups[0]["lr"] = 7.0
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("cuda")
        torch.backends.cuda.matmul.allow_tf32 = not torch.backends.cuda.matmul.allow_tf32
        torch.set_float32_matmul_precision("medium")
        torch.backends.cudnn.benchmark = True
        torch.set_grad_enabled(False)
        torch.manual_seed(3)
        random.random()
        sys.path.append("/nowhere")
        warnings.simplefilter("ignore")
        with torch.autocast("cuda", torch.bfloat16):
            raise RuntimeError("in the middle")

    return step


@pytest.mark.parametrize("make", [training, failing])
def test_everything_is_as_it_was(make: Callable[[Program], Callable[..., Any]]) -> None:
    program = Program()
    step = make(program)
    before, around = program.state(), settings()
    if make is failing:
        with pytest.raises(UsageError, match="in the middle"):
            record(step, program.inputs)
    else:
        assert record(step, program.inputs).calls
    assert differences(around, settings()) == []
    assert differences(before, program.state()) == []


def test_the_real_step_gives_the_loss_that_it_gives_without_us() -> None:
    alone = Program()
    expected = [alone.step(*alone.inputs).item() for _ in range(2)]
    watched = Program()
    record(watched.step, watched.inputs)
    assert [watched.step(*watched.inputs).item() for _ in range(2)] == expected


def test_real_tensors_are_never_written_to() -> None:
    numbers, count = torch.ones(4), torch.tensor(3)

    def step(x: Any) -> None:
        x.add_(1)
        numbers.mul_(2)
        count.add_(1)
        torch._foreach_add_([numbers], 1.0)
        assert count.item() == 4

    x = torch.zeros(3, dtype=torch.int64)
    record(step, (x,))
    assert (numbers.tolist(), count.item(), x.tolist()) == ([1.0] * 4, 3, [0] * 3)


def test_a_compiled_function_still_compiles_afterwards() -> None:
    compiled_with: list[int] = []

    def backend(graph: Any, examples: Any) -> Any:
        compiled_with.append(len(examples))
        return graph.forward

    step = torch.compile(lambda x: torch.sin(x) * 2, backend=backend)
    x = torch.randn(4)
    assert "aten::sin" in [one.call.name for one in record(step, (x,)).calls]
    assert not compiled_with
    assert torch.equal(step(x), torch.sin(x) * 2)
    assert compiled_with
    torch._dynamo.reset()


def test_modules_of_the_user_are_not_left_imported(tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text("import torch\nTABLE = torch.arange(4)\n")
    file = tmp_path / "work.py"
    file.write_text("import beside_it\n\n\ndef step():\n    return beside_it.TABLE * 2\n")
    path = list(sys.path)
    assert [one.call.name for one in record_target(f"{file}:step").calls] == ["aten::mul"]
    assert sys.path == path
    assert "beside_it" not in sys.modules


def test_checkpoints_work_afterwards() -> None:
    from torch.utils.checkpoint import checkpoint

    layer = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))

    def step(x: Any) -> Any:
        result = checkpoint(layer, x, use_reentrant=False).sum()
        result.backward()
        return result

    def on_gpu() -> None:
        checkpoint(layer.to("cuda"), torch.ones(2, 4, device="cuda"), use_reentrant=False).sum().backward()

    if not torch.cuda.is_available():
        record(on_gpu)
    record(step, (torch.ones(2, 4),))
    assert step(torch.ones(2, 4)).dim() == 0
    assert all(type(one.grad) is torch.Tensor for one in layer.parameters())
