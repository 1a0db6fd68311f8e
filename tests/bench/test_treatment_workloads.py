"""The workloads of the bench of treatments: what is set aside, that there are enough, and that each of them runs."""

from __future__ import annotations

import hashlib
from collections import Counter
from importlib.util import find_spec
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from bench.gpu.treatment_workloads import ENTRIES, HELD_BACK, set_aside  # noqa: E402
from bench.gpu.treatment_workloads.form import Entry, workload  # noqa: E402
from bench.gpu.treatment_workloads.written import WRITTEN  # noqa: E402
from gobrrr.observe.stepping import step_of  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

FAMILIES = {
    "convolution", "vit", "gpt", "bert", "t5", "diffusion", "recurrent", "recommender", "graph", "experts", "tabular",
    "agent", "audio", "decoding", "loading",
}  # fmt: skip
KNOWN = {**ENTRIES, **WRITTEN}
QUICK = ("ppo_train", "sage_serve", "cpu_rows_train", *WRITTEN)


def runs(name: str) -> None:
    made = KNOWN[name].made(tiny=True, device="cpu")

    def forward(model: Any, *inputs: Any) -> Any:
        with torch.no_grad():
            return model(*inputs)

    call, inputs = step_of(made, forward)
    for _ in range(2):
        found = call(*inputs)
    found = getattr(found, "last_hidden_state", found)
    for one in found if isinstance(found, tuple) else (found,):
        assert torch.isfinite(one).all(), name


def test_there_are_enough_of_each_kind() -> None:
    count = Counter(one.device for one in ENTRIES.values())
    assert count["cuda"] >= 40
    assert count["cpu"] >= 15
    assert {one.family for one in ENTRIES.values() if one.device == "cuda"} == FAMILIES
    served = [name for name in ENTRIES if "serve" in name or "decode" in name]
    assert 0.25 < len(served) / len(ENTRIES) < 0.75  # of training and inference both


def test_what_is_set_aside_is_what_the_rule_says() -> None:
    """A list that was changed by hand, or that a result had a say in, is another one."""
    assert set_aside(ENTRIES.values()) == HELD_BACK
    assert len(HELD_BACK) == round(len(ENTRIES) / 3)


def test_the_rule_takes_every_third_of_a_family_from_the_second_by_the_hash_of_its_name() -> None:
    def entry(name: str) -> Entry:
        return Entry(name, "one", "", "cuda", False, lambda at: None)  # type: ignore[arg-type, return-value]

    names = sorted("abcdef", key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    assert set_aside(map(entry, "fedcba")) == {names[1], names[4]}


def test_two_workloads_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="ppo_train"):

        @workload("agent", "another one")
        def ppo_train(at: Any) -> Any:
            return None


@pytest.mark.parametrize("name", QUICK)
def test_some_run(name: str) -> None:
    runs(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ENTRIES if name not in QUICK])
def test_every_other_one_runs(name: str) -> None:
    if ENTRIES[name].family == "t5" and find_spec("transformers") is None:
        pytest.skip("needs transformers")
    runs(name)


def test_what_is_done_to_a_photograph_follows_from_its_index_alone():
    from bench.gpu.treatment_workloads.loading import Photographs

    photographs = Photographs(40, 28)
    torch.manual_seed(1)
    first, label = photographs[7]
    torch.manual_seed(2)
    again, _ = photographs[7]
    assert torch.equal(first, again)
    assert label == 7
    assert first.shape == (3, 28, 28)
    assert not torch.equal(first, photographs[23][0])
