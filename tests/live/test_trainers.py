"""Scripts that leave their loop to a library: its optimizer's steps are found all the same."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

SOURCE = str(Path(__file__).resolve().parents[2] / "src")

DRIVER = """
import sys
sys.path.insert(1, {source!r})
from gobrrr.observe.live.loops import script
from gobrrr.observe.live.loops.arrival import WhenTorchArrives

class Fake:
    steps_from, count, restarts = "", 0, 0
    done = property(lambda self: self.count >= 12)
    def open(self): pass
    def close(self): pass
    def boundary(self): self.count += 1
    def restart(self): self.restarts, self.count = self.restarts + 1, 0

def finder():
    from gobrrr.observe.live.loops.loop import Finder
    return Finder(fake)

fake = Fake()
ran = script.run(sys.argv[2], loop=WhenTorchArrives(finder), stop_after=sys.argv[1] == "stop")
print("RAN", ran.status, ran.stopped, ran.found.text, fake.count, fake.restarts)
"""

HUGGING_FACE = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
config = GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=64, n_positions=16, bos_token_id=0, eos_token_id=0)
ids = torch.randint(0, 64, (80, 16))
data = [{"input_ids": one, "labels": one} for one in ids]
options = TrainingArguments(
    output_dir="out", per_device_train_batch_size=2, gradient_accumulation_steps=2, max_steps=20, report_to=[],
    use_cpu=True, save_strategy="no", eval_strategy="no", disable_tqdm=True,
)
trainer = Trainer(GPT2LMHeadModel(config), options, train_dataset=data, eval_dataset=data)
trainer.evaluate()
trainer.train()
print("trained")
"""

LIGHTNING = """
import lightning
import torch
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
    def training_step(self, batch, at): return self.layer(batch).square().mean()
    def validation_step(self, batch, at): self.log("loss", self.layer(batch).mean())
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.1)
    def train_dataloader(self): return torch.utils.data.DataLoader(torch.ones(60, 4), 2)
    val_dataloader = train_dataloader
lightning.Trainer(
    max_steps=20, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
).fit(Module())
print("trained")
"""


@pytest.mark.parametrize("end", ["stop", "go on"])
@pytest.mark.parametrize(
    ("text", "needs", "optimizer"),
    [(HUGGING_FACE, ("transformers", "accelerate"), "AdamW"), (LIGHTNING, ("lightning",), "SGD")],
    ids=["hugging face", "lightning"],
)
def test_a_trainer(tmp_path: Path, text: str, needs: tuple[str, ...], optimizer: str, end: str) -> None:
    for name in needs:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    (tmp_path / "train.py").write_text(textwrap.dedent(text), encoding="utf-8")
    command = [sys.executable, "-c", DRIVER.format(source=SOURCE), end, "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    last = done.stdout.splitlines()[-1] if done.stdout else done.stderr
    assert last == f"RAN 0 {end == 'stop'} steps of {optimizer} 12 0"
    assert ("trained" in done.stdout) == (end != "stop")
    assert "Traceback" not in done.stderr
