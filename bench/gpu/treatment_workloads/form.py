"""What a workload of the bench of treatments is: a name, a family, and what makes it on a device.

`@workload("family", "what it stands for")` over a function of a Setting that returns a gobrrr.Workload registers it
under the function's name. All weights and data are random, with one seed; nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

import gobrrr
from bench.gpu.pairs_form import Setting

Device = Literal["cuda", "cpu"]
Make = Callable[[Setting], gobrrr.Workload]


@dataclass(frozen=True)
class Entry:
    """A workload. `typed`: it runs in 16 bit already, so that nobody would try a narrower type on it."""

    name: str
    family: str
    what: str
    device: Device
    typed: bool
    make: Make

    def made(self, *, tiny: bool = False, device: str | None = None) -> gobrrr.Workload:
        """The workload, on its own device unless another is named; `tiny`: at sizes that a CPU does in a moment."""
        torch.manual_seed(0)
        return self.make(Setting(device or self.device, tiny))


ENTRIES: dict[str, Entry] = {}
"""All workloads of the modules that were imported."""


def workload(family: str, what: str, *, device: Device = "cuda", typed: bool = False) -> Callable[[Make], Make]:
    """Register a function of a Setting. Raises ValueError where the name is taken."""

    def register(make: Make) -> Make:
        name = make.__name__
        if name in ENTRIES:
            raise ValueError(f"two workloads are called {name}")
        ENTRIES[name] = Entry(name, family, what, device, typed, make)
        return make

    return register


def trained(
    model: Any, loss: Callable[..., Any], inputs: tuple[Any, ...], targets: tuple[Any, ...], *, optimizer: Any = None,
    around: tuple[Any, ...] = (), loader: Any = None,
) -> gobrrr.Workload:  # fmt: skip
    """Training: AdamW in its default form, as most people write it, unless an optimizer is given."""
    model.train()
    chosen = torch.optim.AdamW(model.parameters(), lr=1e-4) if optimizer is None else optimizer
    return gobrrr.Workload(
        model=model, inputs=inputs, targets=targets, loss=loss, optimizer=chosen, around=around, loader=loader
    )


def served(model: Any, *inputs: Any) -> gobrrr.Workload:
    """Inference: the model with its inputs."""
    return gobrrr.Workload(model=model.eval(), inputs=inputs)


def made(at: Setting, make: Callable[..., Any], *given: Any, **sizes: Any) -> Any:
    """A model whose weights are drawn on the device, which takes less time than on the host."""
    with torch.device(at.device):
        return make(*given, **sizes)


def sgd(model: Any) -> Any:
    """SGD with momentum in its default form."""
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def token_loss(logits: Any, labels: Any) -> Any:
    """[..., V] against [...]: the mean cross entropy, in float32."""
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]).float(), labels.reshape(-1))
