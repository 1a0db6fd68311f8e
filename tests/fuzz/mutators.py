"""What may be wrong with a trace or a saved diagnosis: named ways to damage one, each with a random generator.

A mutator of a trace changes the decoded JSON in place, or returns the bytes of the file where it damages those.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

Trace = dict[str, Any]
Event = dict[str, Any]
Mutator = Callable[[Trace, Random], "bytes | None"]

MUTATORS: dict[str, Mutator] = {}

NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 0.0, -0.0, 1e-9, 0.5, -1e12, 1e15, 1e300, -1e300, float("nan"), float("inf"), float("-inf"), 2**31, 2**53,
    2**63 - 1, 2**63, -(2**63), 2**64, 10**40,
)  # fmt: skip
ODD: tuple[Any, ...] = (
    None, True, False, "", "x", "12", "-3.5", "NaN", "1e400", "0x10", [], {}, [[]], [1, 2], {"a": 1}, "\ud800", "\x00",
    "٣", [None], [["x"]], {"": {}},
)  # fmt: skip
NAMES = (
    "", " ", "\x1b[31mred\x1b[0m", "</script><script>alert(1)</script>", "\ud800\udfff", "‮right to left", "名" * 40,
    "a" * 5000, "x\ny\r\nz", "aten::", "::", "aten::mm", "ProfilerStep#", "ProfilerStep#-1", "nn.Module: ", "%s%n{0}",
    "ncclDevKernel_AllReduce", "Memcpy HtoD (Pageable -> Device)", "cudaGraphLaunch", "cudaDeviceSynchronize",
    "Optimizer.step#AdamW.step", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "file.py(0): f",
    "Torch-Compiled Region: 0/0", "triton_poi_fused_add_0", "void gemm<0>(", "aten::scaled_dot_product_attention",
)  # fmt: skip
DTYPES = (
    "float",
    "double",
    "c10::BFloat16",
    "c10::Half",
    "long int",
    "",
    "Scalar",
    "float9_e9m9",
    "TensorList",
    None,
    7,
)
CATEGORIES = (
    "cpu_op", "kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "user_annotation",
    "gpu_user_annotation", "python_function", "overhead", "cuda_sync", "nonsense", "", None,
)  # fmt: skip
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def mutator(function: Mutator) -> Mutator:
    """Register a mutator under its name."""
    MUTATORS[function.__name__] = function
    return function


def timed(trace: Trace, *categories: str) -> list[Event]:
    """The events with a duration, of some categories."""
    found = [one for one in trace["traceEvents"] if isinstance(one, dict) and one.get("ph") == "X"]
    return [one for one in found if not categories or one.get("cat") in categories]


def some(rng: Random, items: list[Any]) -> list[Any]:
    """One of them, a few, a third or all."""
    if not items:
        return []
    count = rng.choice((1, 1, 3, max(len(items) // 3, 1), len(items)))
    return rng.sample(items, min(count, len(items)))


def args_of(event: Event) -> dict[str, Any]:
    """The arguments of an event, which it then has."""
    if not isinstance(event.get("args"), dict):
        event["args"] = {}
    made: dict[str, Any] = event["args"]
    return made


def strange(rng: Random) -> Any:
    """A value that a field should not have."""
    return rng.choice((*NUMBERS, *ODD))


# -- events as a whole


@mutator
def drop_events(trace: Trace, rng: Random) -> None:
    gone = {id(one) for one in some(rng, timed(trace))}
    trace["traceEvents"] = [one for one in trace["traceEvents"] if id(one) not in gone]


@mutator
def drop_a_category(trace: Trace, rng: Random) -> None:
    gone = rng.choice(CATEGORIES)
    trace["traceEvents"] = [one for one in trace["traceEvents"] if one.get("cat") != gone]


@mutator
def keep_one_category(trace: Trace, rng: Random) -> None:
    kept = rng.choice(CATEGORIES)
    trace["traceEvents"] = [one for one in trace["traceEvents"] if one.get("cat") == kept] or trace["traceEvents"][:1]


@mutator
def keep_a_front(trace: Trace, rng: Random) -> None:
    events = trace["traceEvents"]
    trace["traceEvents"] = events[: rng.choice((0, 1, 2, 5, len(events) // 2))]


@mutator
def duplicate_events(trace: Trace, rng: Random) -> None:
    for one in some(rng, timed(trace)):
        trace["traceEvents"].append(dict(one))


@mutator
def reorder_events(trace: Trace, rng: Random) -> None:
    rng.shuffle(trace["traceEvents"])


@mutator
def events_of_no_form(trace: Trace, rng: Random) -> None:
    for _ in range(rng.randint(1, 6)):
        trace["traceEvents"].insert(rng.randint(0, len(trace["traceEvents"])), strange(rng))


@mutator
def other_phases(trace: Trace, rng: Random) -> None:
    for one in some(rng, timed(trace)):
        one["ph"] = rng.choice(("B", "E", "M", "i", "s", "f", "b", "C", "", "XX", None, 5))


@mutator
def begins_and_ends(trace: Trace, rng: Random) -> None:
    made = []
    for one in some(rng, timed(trace)):
        one["ph"] = "B"
        if rng.random() < 0.8:
            made.append({**one, "ph": "E", "ts": one["ts"] + one.get("dur", 0)})
    trace["traceEvents"] += made


@mutator
def other_categories(trace: Trace, rng: Random) -> None:
    for one in some(rng, timed(trace)):
        one["cat"] = rng.choice(CATEGORIES)


@mutator
def missing_fields(trace: Trace, rng: Random) -> None:
    key = rng.choice(("ph", "cat", "name", "pid", "tid", "ts", "dur", "args"))
    for one in some(rng, timed(trace)):
        one.pop(key, None)


@mutator
def fields_of_other_types(trace: Trace, rng: Random) -> None:
    key = rng.choice(("ph", "cat", "name", "pid", "tid", "ts", "dur", "args"))
    for one in some(rng, timed(trace)):
        one[key] = strange(rng)


# -- times


@mutator
def zero_durations(trace: Trace, rng: Random) -> None:
    for one in some(rng, timed(trace)):
        one["dur"] = 0


@mutator
def kernels_of_no_length(trace: Trace, rng: Random) -> None:
    for one in timed(trace, *ON_DEVICE) if rng.random() < 0.5 else some(rng, timed(trace, *ON_DEVICE)):
        one["dur"] = 0


@mutator
def all_times_equal(trace: Trace, rng: Random) -> None:
    events = timed(trace) if rng.random() < 0.5 else timed(trace, *ON_DEVICE)
    at = events[0]["ts"] if events else 0
    for one in events:
        one["ts"] = at
        if rng.random() < 0.5:
            one["dur"] = 1


@mutator
def equal_durations(trace: Trace, rng: Random) -> None:
    length = rng.choice((0.001, 1, 10, 1e6))
    for one in timed(trace, *ON_DEVICE):
        one["dur"] = length


@mutator
def odd_durations(trace: Trace, rng: Random) -> None:
    for one in some(rng, timed(trace)):
        one["dur"] = rng.choice(NUMBERS)


@mutator
def odd_begins(trace: Trace, rng: Random) -> None:
    for one in some(rng, timed(trace)):
        one["ts"] = rng.choice(NUMBERS)


@mutator
def scaled_times(trace: Trace, rng: Random) -> None:
    factor = rng.choice((0.0, 1e-6, 1e-3, 10, 1e3, 1e6, -1))
    wanted = rng.choice(((), ON_DEVICE, ("cpu_op", "cuda_runtime")))
    for one in timed(trace, *wanted):
        one["dur"] = one.get("dur", 0) * factor


@mutator
def shifted_clocks(trace: Trace, rng: Random) -> None:
    by = rng.choice((-1e7, -1e4, -100, 100, 1e4, 1e7, 1e14))
    for one in timed(trace, *rng.choice((ON_DEVICE, ("cuda_runtime",), ("cpu_op",), ("user_annotation",)))):
        one["ts"] = one["ts"] + by


@mutator
def overlapping(trace: Trace, rng: Random) -> None:
    for one in some(rng, timed(trace)):
        one["dur"] = one.get("dur", 0) * rng.choice((2, 10, 1000)) + 50


@mutator
def far_apart(trace: Trace, rng: Random) -> None:
    events = timed(trace)
    at = rng.choice(events)["ts"] if events else 0
    for one in events:
        if one["ts"] >= at:
            one["ts"] += rng.choice((1e6, 1e9, 1e12))


@mutator
def near_the_end_of_integers(trace: Trace, rng: Random) -> None:
    by = rng.choice((9.2e15, -9.2e15, 1e17, 1.7e18))
    for one in timed(trace):
        one["ts"] += by


@mutator
def times_as_text(trace: Trace, rng: Random) -> None:
    for one in some(rng, timed(trace)):
        for key in ("ts", "dur"):
            one[key] = str(one.get(key, ""))


# -- marks and frames


@mutator
def other_marks(trace: Trace, rng: Random) -> None:
    for one in some(rng, timed(trace, "user_annotation")):
        one["name"] = rng.choice(
            ("ProfilerStep#1", "ProfilerStep#0", "ProfilerStep#x", "ProfilerStep#99999999999999999999")
        )
        one["dur"] = one.get("dur", 0) * rng.choice((0, 0.1, 1, 3, 100))


@mutator
def nested_marks(trace: Trace, rng: Random) -> None:
    for one in some(rng, timed(trace, "user_annotation")):
        inner = dict(one, ts=one["ts"] + 1, dur=max(one.get("dur", 0) - 2, 0), name=f"ProfilerStep#{rng.randint(0, 9)}")
        trace["traceEvents"].append(inner)


@mutator
def marks_in_masses(trace: Trace, rng: Random) -> None:
    events = timed(trace)
    if not events:
        return
    begin, gap = min(one["ts"] for one in events), rng.choice((0.0, 0.01, 5.0, 1000.0))
    for number in range(rng.choice((1, 2, 50, 400))):
        mark = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 1, "tid": 1}
        trace["traceEvents"].append(mark | {"ts": begin + number * gap, "dur": gap, "args": {}})


@mutator
def python_frames(trace: Trace, rng: Random) -> None:
    host = timed(trace, "cpu_op")
    for number, one in enumerate(some(rng, host)):
        name = rng.choice(("nn.Module: Block_0", "train.py(7): step", "torch/nn/modules/module.py(1): _call", *NAMES))
        trace["traceEvents"].append(
            dict(one, cat="python_function", name=name, ts=one["ts"] - 1, dur=one.get("dur", 0) + 2,
                 args={"Python id": number, "Python parent id": rng.choice((None, number, number - 1, 10**6))})
        )  # fmt: skip


# -- who launched what


@mutator
def collided_correlations(trace: Trace, rng: Random) -> None:
    to = rng.choice((0, 1, -1, None))
    for one in some(rng, [one for one in timed(trace) if "correlation" in args_of(one)]):
        one["args"]["correlation"] = to


@mutator
def missing_correlations(trace: Trace, rng: Random) -> None:
    for one in some(rng, timed(trace, *rng.choice((ON_DEVICE, ("cuda_runtime", "cuda_driver"))))):
        args_of(one).pop("correlation", None)


@mutator
def shuffled_correlations(trace: Trace, rng: Random) -> None:
    events = [one for one in timed(trace, *ON_DEVICE) if "correlation" in args_of(one)]
    ids = [one["args"]["correlation"] for one in events]
    rng.shuffle(ids)
    for one, number in zip(events, ids, strict=True):
        one["args"]["correlation"] = number


@mutator
def external_ids(trace: Trace, rng: Random) -> None:
    for one in some(rng, timed(trace)):
        args_of(one)["External id"] = rng.choice((0, 1, -1, 2**40, None, "7", 1.5))


@mutator
def one_graph_launch(trace: Trace, rng: Random) -> None:
    calls = timed(trace, "cuda_runtime")
    if not calls:
        return
    call = rng.choice(calls)
    call["name"] = rng.choice(("cudaGraphLaunch", "hipGraphLaunch", "cuGraphLaunch"))
    number = args_of(call).get("correlation", 1)
    for one in some(rng, timed(trace, *ON_DEVICE)):
        args_of(one)["correlation"] = number
        one["args"]["graph node id"] = rng.choice((0, 1, 2**33, -1, None, "x"))


@mutator
def streams(trace: Trace, rng: Random) -> None:
    kinds = rng.choice(((0, 7), (7, 20, 21), (-1, 0), (2**31, 5), tuple(range(300)), (None, "7")))
    for one in some(rng, timed(trace, *ON_DEVICE)):
        args_of(one)["stream"] = rng.choice(kinds)


@mutator
def devices(trace: Trace, rng: Random) -> None:
    for one in some(rng, timed(trace, *ON_DEVICE)):
        args_of(one)["device"] = rng.choice((0, 1, 7, -1, 4095, 4096, 2**31, None, "0"))


@mutator
def waits(trace: Trace, rng: Random) -> None:
    for one in some(rng, timed(trace, "cuda_runtime")):
        one["name"] = rng.choice(
            ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy", "cudaMalloc",
             "cudaFree", "cudaStreamWaitEvent", "cudaEventRecord", "cuModuleLoadData", "cudaStreamIsCapturing")
        )  # fmt: skip


@mutator
def other_threads(trace: Trace, rng: Random) -> None:
    for one in some(rng, timed(trace)):
        one[rng.choice(("pid", "tid"))] = rng.choice((0, 1, -1, 2**40, "stream 7", "", None, [1]))


# -- what was computed


@mutator
def names(trace: Trace, rng: Random) -> None:
    for one in some(rng, timed(trace)):
        one["name"] = rng.choice(NAMES)


@mutator
def swapped_names(trace: Trace, rng: Random) -> None:
    events = timed(trace, rng.choice(("cpu_op", "kernel", "cuda_runtime")))
    names_ = [one["name"] for one in events]
    rng.shuffle(names_)
    for one, name in zip(events, names_, strict=True):
        one["name"] = name


def _shape(rng: Random) -> Any:
    size = rng.choice((0, 1, 3, 8, 1024, 2**20, 2**40, 2**62, 2**64, -1, -8, 1.5, None, "4"))
    return [size if rng.random() < 0.4 else rng.choice((1, 8, 64)) for _ in range(rng.choice((0, 1, 2, 3, 4, 5, 9)))]


@mutator
def shapes(trace: Trace, rng: Random) -> None:
    for one in some(rng, timed(trace, "cpu_op")):
        dims = args_of(one).get("Input Dims")
        count = len(dims) if isinstance(dims, list) else 3
        one["args"]["Input Dims"] = [rng.choice((_shape(rng), [], [_shape(rng), _shape(rng)])) for _ in range(count)]


@mutator
def ragged_arguments(trace: Trace, rng: Random) -> None:
    for one in some(rng, timed(trace, "cpu_op")):
        key = rng.choice(("Input Dims", "Input type", "Input Strides", "Concrete Inputs"))
        value = args_of(one).get(key)
        if isinstance(value, list):
            one["args"][key] = value[: rng.randint(0, len(value))] + [strange(rng)] * rng.randint(0, 2)


@mutator
def swapped_shapes(trace: Trace, rng: Random) -> None:
    events = [one for one in timed(trace, "cpu_op") if "Input Dims" in args_of(one)]
    dims = [one["args"]["Input Dims"] for one in events]
    rng.shuffle(dims)
    for one, value in zip(events, dims, strict=True):
        one["args"]["Input Dims"] = value


@mutator
def strides(trace: Trace, rng: Random) -> None:
    for one in some(rng, timed(trace, "cpu_op")):
        value = args_of(one).get("Input Strides")
        if isinstance(value, list):
            one["args"]["Input Strides"] = [
                [rng.choice((0, 1, -1, 2**40, 7)) for _ in item] if isinstance(item, list) else item for item in value
            ]


@mutator
def types(trace: Trace, rng: Random) -> None:
    for one in some(rng, timed(trace, "cpu_op")):
        value = args_of(one).get("Input type")
        one["args"]["Input type"] = [rng.choice(DTYPES) for _ in value] if isinstance(value, list) else strange(rng)


@mutator
def concrete_inputs(trace: Trace, rng: Random) -> None:
    for one in some(rng, timed(trace, "cpu_op")):
        value = args_of(one).get("Concrete Inputs")
        if isinstance(value, list):
            texts = ("", "0", "-1", "[0, 0]", "[1, 1]", "nan", "inf", "True", "[", "99999999999999999999", "0.0", None)
            one["args"]["Concrete Inputs"] = [rng.choice(texts) for _ in value]


@mutator
def renamed_arguments(trace: Trace, rng: Random) -> None:
    key = rng.choice(("Input Dims", "Input type", "correlation", "stream", "External id", "bytes", "grid", "block"))
    for one in some(rng, timed(trace)):
        if key in args_of(one):
            one["args"][rng.choice((key.lower() + "_", key[::-1], ""))] = one["args"].pop(key)


@mutator
def arguments_of_other_types(trace: Trace, rng: Random) -> None:
    for one in some(rng, timed(trace)):
        for key in some(rng, list(args_of(one))):
            one["args"][key] = strange(rng)


@mutator
def copies(trace: Trace, rng: Random) -> None:
    for one in some(rng, timed(trace, *ON_DEVICE)):
        one["cat"] = "gpu_memcpy"
        way, memory = rng.choice(("HtoD", "DtoH", "DtoD", "PtoP", "?")), rng.choice(("Pageable", "Pinned"))
        one["name"] = f"Memcpy {way} ({memory} -> Device)"
        args_of(one)["bytes"] = rng.choice((0, 1, 2**20, 2**63, -1, None, "x"))


@mutator
def collectives(trace: Trace, rng: Random) -> None:
    for one in some(rng, timed(trace, "kernel")):
        one["name"] = f"ncclDevKernel_{rng.choice(('AllReduce_Sum_f32_RING', 'AllGather', 'SendRecv', ''))}"
        args_of(one).update(rng.choice((
            {"Collective name": "allreduce", "In msg nelems": 2**20, "dtype": "Float", "Group size": 2},
            {"Collective name": None, "In msg nelems": -5, "dtype": 7, "Group size": 0},
            {"In msg nelems": "many", "Out msg nelems": 2**70, "Group size": 1},
        )))  # fmt: skip


# -- the rest of the file


@mutator
def properties(trace: Trace, rng: Random) -> None:
    given = trace.get("deviceProperties")
    if isinstance(given, list) and given and isinstance(given[0], dict) and rng.random() < 0.7:
        key = rng.choice(list(given[0]) or [""])
        given[0][key] = rng.choice(("NVIDIA A100-SXM4-80GB", "", "H100" * 400, "AMD Instinct MI300X", *NUMBERS, *ODD))
    else:
        trace["deviceProperties"] = strange(rng)


@mutator
def metadata(trace: Trace, rng: Random) -> None:
    keys = ("schemaVersion", "distributedInfo", "baseTimeNanoseconds", "with_stack", "record_shapes", "displayTimeUnit",
            "cuda_runtime_version", "trace_id", "traceName", "profile_memory")  # fmt: skip
    trace[rng.choice(keys)] = rng.choice(({"rank": 1, "world_size": 2, "backend": "nccl"}, {"rank": "x"}, strange(rng)))


@mutator
def fields_of_the_file_lost(trace: Trace, rng: Random) -> None:
    for key in some(rng, [key for key in trace if key != "traceEvents"]):
        del trace[key]


@mutator
def other_events(trace: Trace, rng: Random) -> None:
    trace["traceEvents"] = rng.choice((strange(rng), [], [trace["traceEvents"]], {"a": trace["traceEvents"][:3]}))


@mutator
def cut_off(trace: Trace, rng: Random) -> bytes:
    data = encode(trace)
    return data[: rng.randint(0, len(data))]


@mutator
def flipped_bytes(trace: Trace, rng: Random) -> bytes:
    data = bytearray(encode(trace))
    for _ in range(rng.choice((1, 10, 200))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


@mutator
def damaged_gzip(trace: Trace, rng: Random) -> bytes:
    data = bytearray(gzip.compress(encode(trace), 1, mtime=0))
    if rng.random() < 0.5:
        return bytes(data[: rng.randint(0, len(data))])
    for _ in range(rng.choice((1, 3))):
        data[rng.randrange(len(data))] ^= rng.randrange(1, 256)
    return bytes(data)


@mutator
def several_in_one(trace: Trace, rng: Random) -> bytes:
    data = encode(trace)
    return rng.choice((data + data, data + b"\n" + data, gzip.compress(data, 1) * 2, b"[" + data + b"," + data + b"]"))


def encode(trace: Trace) -> bytes:
    """The file; also what JSON has no words for: NaN, infinity, lone surrogates, integers of any length."""
    return json.dumps(trace, ensure_ascii=True).encode()


# -- saved diagnoses


Place = tuple[Any, Any]
"""(what holds a value, its key or index)"""


def places(value: Any) -> Iterator[Place]:
    """Every place in a record that holds something."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(items):
        yield value, key
        yield from places(item)


RECORDS: dict[str, Callable[[dict[str, Any], Random], None]] = {}


def of_record(function: Callable[[dict[str, Any], Random], None]) -> Callable[[dict[str, Any], Random], None]:
    """Register a mutator of saved diagnoses."""
    RECORDS[function.__name__] = function
    return function


def _of_type(record: dict[str, Any], rng: Random, *kinds: type) -> Place | None:
    # a field first, so that long columns do not hide the rest
    fields = [one for one in record if not isinstance(record[one], (str, int, float, type(None)))]
    home = record[rng.choice(fields)] if fields and rng.random() < 0.8 else record
    found = [(holder, key) for holder, key in places(home) if type(holder[key]) in kinds]
    return rng.choice(found) if found else None


@of_record
def odd_numbers(record: dict[str, Any], rng: Random) -> None:
    for _ in range(rng.choice((1, 1, 3))):
        if (place := _of_type(record, rng, int, float)) is not None:
            place[0][place[1]] = rng.choice(
                [one for one in NUMBERS if not isinstance(one, float) or math.isfinite(one)]
            )


@of_record
def infinite_numbers(record: dict[str, Any], rng: Random) -> None:
    if (place := _of_type(record, rng, int, float)) is not None:
        place[0][place[1]] = rng.choice((float("nan"), float("inf"), float("-inf")))


@of_record
def negated_numbers(record: dict[str, Any], rng: Random) -> None:
    if (place := _of_type(record, rng, int, float)) is not None:
        place[0][place[1]] = -place[0][place[1]]


@of_record
def scaled_numbers(record: dict[str, Any], rng: Random) -> None:
    if (place := _of_type(record, rng, int, float)) is not None:
        place[0][place[1]] = place[0][place[1]] * rng.choice((10, 1000, 10**9)) + 1


@of_record
def odd_values(record: dict[str, Any], rng: Random) -> None:
    if (place := _of_type(record, rng, int, float, str, list, dict, type(None), bool)) is not None:
        place[0][place[1]] = strange(rng)


@of_record
def odd_texts(record: dict[str, Any], rng: Random) -> None:
    if (place := _of_type(record, rng, str)) is not None:
        place[0][place[1]] = rng.choice(NAMES)


@of_record
def shorter_lists(record: dict[str, Any], rng: Random) -> None:
    if (place := _of_type(record, rng, list)) is not None:
        value = place[0][place[1]]
        place[0][place[1]] = value[: rng.randint(0, len(value))]


@of_record
def longer_lists(record: dict[str, Any], rng: Random) -> None:
    if (place := _of_type(record, rng, list)) is not None:
        value = place[0][place[1]]
        place[0][place[1]] = [*value, *(value[-1:] * rng.choice((1, 5)))]


@of_record
def swapped_values(record: dict[str, Any], rng: Random) -> None:
    first, second = _of_type(record, rng, int, float), _of_type(record, rng, int, float)
    if first is not None and second is not None:
        first[0][first[1]], second[0][second[1]] = second[0][second[1]], first[0][first[1]]


@of_record
def lost_fields(record: dict[str, Any], rng: Random) -> None:
    found = [(holder, key) for holder, key in places(record) if isinstance(holder, dict)]
    holder, key = rng.choice(found)
    del holder[key]


@of_record
def swapped_parts(record: dict[str, Any], rng: Random) -> None:
    first, second = rng.sample(list(record), 2)
    record[first], record[second] = record[second], record[first]
