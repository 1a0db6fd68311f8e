"""What every way owes: code that is Python, a treatment of its name, predictions of treatments that are known."""

from __future__ import annotations

import ast
import re

import pytest

from gobrrr.model.workload import Workload
from gobrrr.treatments import catalogue
from gobrrr.treatments.framework import applying
from gobrrr.treatments.framework.asking import word_of
from gobrrr.treatments.framework.way import UnfitWay
from tests.treatments.ways.making import Pictures, closure, inference, torch, training

WORKLOADS = {
    "training": training,
    "step": lambda: closure(training()),
    "inference": inference,
    "pictures": lambda: inference(Pictures(), torch.rand(2, 3, 6, 6)),
}


@pytest.mark.parametrize("cuda", [False, True])
@pytest.mark.parametrize("kind", WORKLOADS)
def test_ways_say_what_they_are(kind: str, cuda: bool, monkeypatch: pytest.MonkeyPatch):
    if cuda:
        monkeypatch.setattr(applying, "on_cuda", lambda workload: True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    workload, known = WORKLOADS[kind](), {one.name for one in catalogue()}
    seen = []
    for treatment in catalogue():
        for one in treatment.ways(workload) if treatment.ways is not None else ():
            seen.append(one.name)
            assert one.name.partition(":")[0] == treatment.name
            if isinstance(one, UnfitWay):
                assert one.why
                assert "\n" not in one.why
                continue
            assert one.treatment == treatment.name
            ast.parse(one.code)
            assert {word_of(name) for name in one.as_if} <= known
            assert {name.partition(":")[0] for name in one.conflicts} <= known
            assert one.as_if or one.worth is not None
    assert len(seen) == len(set(seen))


CONSTRUCTORS = re.compile(r"\b(optim\.\w+|DataLoader|AveragedModel|clip_grad_\w+|(?<!_)attention)\((?!\.\.\.)")


def codes() -> list[str]:
    """What all ways of these workloads and all treatments print."""
    found = [one.code_to_paste for one in catalogue()]
    for make in WORKLOADS.values():
        found += [
            one.code
            for treatment in catalogue()
            if treatment.ways is not None
            for one in treatment.ways(make())
            if not isinstance(one, UnfitWay)
        ]
    return found


def test_what_is_pasted_keeps_the_other_arguments_of_what_it_changes():
    for code in codes():
        told = [one.group(0) for one in CONSTRUCTORS.finditer(code) if "SparseAdam" not in one.group(0)]
        assert not told, code


def test_the_pasted_optimizer_trains_as_the_user_s_own_does():
    model = torch.nn.Linear(3, 3)
    groups = [{"params": [model.weight], "lr": 0.1}, {"params": [model.bias], "weight_decay": 0.3}]
    given = {"lr": 0.2, "betas": (0.8, 0.9), "amsgrad": True}

    class Own(torch.optim.AdamW):
        pass

    for kind in (torch.optim.AdamW, Own):
        own = kind([dict(one) for one in groups], **given)
        workload = Workload(model=model, optimizer=own, loss=torch.nn.functional.mse_loss)
        for treatment in catalogue():
            for one in treatment.ways(workload) if treatment.name == "fused-optimizer" else ():
                names = {"torch": torch, "optimizer": kind([dict(group) for group in groups], **given), "given": given}
                names["groups"] = [dict(group) for group in groups]
                exec(one.code.replace("(...,", "(groups, **given,"), names)
                for mine, theirs in zip(own.param_groups, names["optimizer"].param_groups, strict=True):
                    for key in mine.keys() - {"params", "fused", "foreach"}:
                        assert mine[key] == theirs[key]
                    assert theirs["fused" if ":" not in one.name else "foreach"]


def test_only_training_is_told_to_scale_its_learning_rate():
    (told,) = (treatment for treatment in catalogue() if treatment.name == "larger-batch")
    for kind, scaled in (("training", True), ("inference", False)):
        (one,) = told.ways(WORKLOADS[kind]())
        assert ("learning rate" in one.code) == scaled
