"""What every way owes: code that is Python, a treatment of its name, predictions of treatments that are known."""

from __future__ import annotations

import ast

import pytest

from gobrrr.treatments import applying, catalogue
from gobrrr.treatments.asking import word_of
from gobrrr.treatments.way import Unfit
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
            if isinstance(one, Unfit):
                assert one.why
                assert "\n" not in one.why
                continue
            assert one.treatment == treatment.name
            ast.parse(one.code)
            assert {word_of(name) for name in one.as_if} <= known
            assert {name.partition(":")[0] for name in one.conflicts} <= known
            assert one.as_if or one.worth is not None
    assert len(seen) == len(set(seen))
