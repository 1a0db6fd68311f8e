"""Calls by their names, however long these are."""

from __future__ import annotations

import time

import numpy as np
import pytest

from gobrrr.analysis.events.calls import HostCall, classify, communicates, compiles


def test_a_name_is_told_by_its_beginning():
    names = ("cudaMalloc" + "x" * 20_000, "a" * 20_000 + "DataLoader", "void nccl<" + "k" * 20_000 + ">")
    assert classify(names).tolist() == [HostCall.ALLOCATE, HostCall.OTHER, HostCall.OTHER]
    assert communicates(names).tolist() == [False, False, True]


def test_thousands_of_endless_names():
    names = tuple("k" * 20_000 + str(number) for number in range(3_000))
    begin = time.perf_counter()
    classify(names)
    communicates(names)
    assert time.perf_counter() - begin < 5


def test_the_answer_is_kept_and_nobody_can_change_it():
    names = ("cudaFree", "aten::mm")
    assert classify(names) is classify(list(names))
    with pytest.raises(ValueError, match="read-only"):
        classify(names)[0] = HostCall.WAIT
    assert np.array_equal(classify(names), [HostCall.ALLOCATE, HostCall.OTHER])


@pytest.mark.parametrize(
    ("frame", "call"),
    [
        ("/home/me/dataloader-notes/train.py(3): step", HostCall.OTHER),
        ("torch_compile/train.py(3): step", HostCall.OTHER),
        ("train_compile.py(3): step", HostCall.OTHER),
        ("/home/me/pin_memory/train.py(3): cudaMalloc", HostCall.OTHER),
        ("train.py(3): next_batch", HostCall.INPUT),
        ("data_loader.py(3): rows", HostCall.INPUT),
        ("/home/me/run/dataloader.py(3): rows", HostCall.INPUT),
        ("torch/utils/data/dataloader.py(733): __next__", HostCall.INPUT),
        ("torch/_dynamo/convert_frame.py(3): _compile", HostCall.COMPILE),
        ("torch/_compile.py(53): inner", HostCall.OTHER),
        ("re.py(3): _compile", HostCall.OTHER),
    ],
)
def test_of_a_programs_own_frame_the_function_tells_and_no_folder(frame: str, call: HostCall) -> None:
    assert classify((frame,)).tolist() == [call]


def test_no_folder_of_the_users_is_the_compiler():
    assert not compiles(("/home/me/dynamo/train.py(3): step", "inductor/train.py(3): step"))
    assert compiles(("torch/_dynamo/eval_frame.py(3): _fn",))
