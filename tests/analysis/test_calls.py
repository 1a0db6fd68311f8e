"""Calls by their names, however long these are."""

from __future__ import annotations

import time

import numpy as np
import pytest

from gobrrr.analysis.events.calls import Call, classify, communicates, compiles


def test_a_name_is_told_by_its_beginning():
    names = ("cudaMalloc" + "x" * 20_000, "a" * 20_000 + "DataLoader", "void nccl<" + "k" * 20_000 + ">")
    assert classify(names).tolist() == [Call.ALLOCATE, Call.OTHER, Call.OTHER]
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
        classify(names)[0] = Call.WAIT
    assert np.array_equal(classify(names), [Call.ALLOCATE, Call.OTHER])


@pytest.mark.parametrize(
    ("frame", "call"),
    [
        ("/home/me/dataloader-notes/train.py(3): step", Call.OTHER),
        ("torch_compile/train.py(3): step", Call.OTHER),
        ("train_compile.py(3): step", Call.OTHER),
        ("/home/me/pin_memory/train.py(3): cudaMalloc", Call.OTHER),
        ("train.py(3): next_batch", Call.INPUT),
        ("data_loader.py(3): rows", Call.INPUT),
        ("/home/me/run/dataloader.py(3): rows", Call.INPUT),
        ("torch/utils/data/dataloader.py(733): __next__", Call.INPUT),
        ("torch/_dynamo/convert_frame.py(3): _compile", Call.COMPILE),
        ("torch/_compile.py(53): inner", Call.OTHER),
        ("re.py(3): _compile", Call.OTHER),
    ],
)
def test_of_a_programs_own_frame_the_function_tells_and_no_folder(frame: str, call: Call) -> None:
    assert classify((frame,)).tolist() == [call]


def test_no_folder_of_the_users_is_the_compiler():
    assert not compiles(("/home/me/dynamo/train.py(3): step", "inductor/train.py(3): step"))
    assert compiles(("torch/_dynamo/eval_frame.py(3): _fn",))
