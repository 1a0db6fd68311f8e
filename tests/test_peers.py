"""What other tools say wrongly of public traces, and what is right.

Each docstring names the tool and its figure. The traces stay outside of this repository; the tests skip where they are
absent. Tools: HTA (facebookresearch/HolisticTraceAnalysis, traceinsight 0.6.1), TraceLens (AMD-AGI/TraceLens, 171dd74),
torch's torch._inductor.analysis.profile_analysis (2.13.0), torch-tb-profiler 0.4.3.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.analysis.events.calls import communicates
from gobrrr.analysis.events.intervals import clip, union
from gobrrr.cost import price
from gobrrr.hardware import find, match_device
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.model.events import EventKind, EventTable
from gobrrr.model.work import OpCall, Tensor
from tests.analysis.tables import diagnosis, read

BERT = "tracelens/h100__gaunernst_bert-small-uncased__1016001.json.gz"
TIMESFORMER = "tracelens/h100__facebook_timesformer-base-finetuned-k400__1016002.json.gz"
QWEN = "tracelens/h100__Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
VLLM = "tracelens/inference__vllm_decode_full__graph_execution.json.gz"
B200 = "tracelens/b200__eager_trace.json.gz"
V100 = "hta/df_index_resolver__df_index_resolver.json.gz"
RESNET = "kineto/tb_samples__resnet50_num_workers_{}__worker0.pt.trace{}.json.gz"
US, MS = 1e3, 1e6


def idle_ns(found: Diagnosis) -> int:
    """Nanoseconds between the first and the last work of the only device in which it does nothing."""
    (device,) = found.devices
    return device.span_total_ns - device.busy_total_ns


def kernel_ns(events: EventTable) -> int:
    """Nanoseconds in which a kernel runs; copies and sets are none."""
    rows = events.of(EventKind.KERNEL)
    return union(events.start_ns[rows], events.end_ns[rows]).length


def share(found: Diagnosis, line: str, cause: str | None = None) -> float:
    return sum(one.share for one in found.budget if one.line == line and cause in (None, one.cause))


# -- HTA ------------------------------------------------------------


def test_nanoseconds_are_kept(public_traces: Path):
    """H2: HTA cuts times to whole microseconds: idle 458 us (4.3 %) of a replayed graph's 10.7 ms. It is 25 us."""
    found = diagnosis(public_traces / VLLM)
    assert idle_ns(found) / US == pytest.approx(25.5, abs=0.1)
    assert found.devices[0].span_total_ns / MS == pytest.approx(10.743, abs=0.001)
    assert share(found, "overhead") < 0.01


def test_short_kernels_keep_their_time(public_traces: Path):
    """H2: HTA: compute 252 us, TraceLens on negative durations 224 us. The kernels run for 307 us."""
    assert kernel_ns(read(public_traces / BERT).events) / US == pytest.approx(307, abs=0.5)


def test_idle_between_long_kernels(public_traces: Path):
    """H2: HTA: 2,098 us. Within the device's span it idles for 1,559 us."""
    assert idle_ns(diagnosis(public_traces / TIMESFORMER)) / US == pytest.approx(1_559, abs=0.5)


def test_work_from_before_the_recording_is_not_dropped(public_traces: Path):
    """H3: HTA ends in a bare AssertionError; TraceLens sees 34.9 ms, since it drops kernels without a launch.

    The device's span is 49.65 ms, of which it idles 4.0 ms (8.07 %).
    """
    found = diagnosis(public_traces / QWEN)
    assert found.devices[0].span_total_ns / MS == pytest.approx(49.65, abs=0.01)
    assert idle_ns(found) / MS == pytest.approx(4.0, abs=0.01)
    assert idle_ns(found) / found.devices[0].span_total_ns == pytest.approx(0.0807, abs=0.0001)
    assert any("before the recording began" in note for note in found.notes)


def test_statistics_of_one_kernel(public_traces: Path):
    """H4: HTA: sum = max = min = mean = 22,604 us, standard deviation 0 (and it drops the last step).

    It runs 25 times, for 1,662 us at most and 28,253 us in all.
    """
    events = read(public_traces / V100).events
    rows = [row for row in events.of(EventKind.KERNEL).tolist() if events.name_of(row) == "volta_sgemm_128x128_tn"]
    durations = events.duration_ns[rows] / US
    assert len(rows) == 25
    assert durations.max() == 1_662
    assert durations.sum() == 28_253
    assert durations.min() < durations.max()


def test_a_busy_device_is_not_all_host(public_traces: Path):
    """H6: HTA's critical path: "cpu_bound 100 %" in steps 2 to 4. The device is busy for 52 to 55 % of them."""
    seen = read(public_traces / V100)
    rows = seen.links.device
    busy = union(seen.events.start_ns[rows], seen.events.end_ns[rows])
    edges = [*seen.steps.begins, seen.steps.stop]
    shares = [clip(busy, *edges[step : step + 2]).length / (edges[step + 1] - edges[step]) for step in (1, 2, 3)]
    assert min(shares) > 0.50
    assert max(shares) < 0.57
    found = diagnosis(public_traces / V100)
    assert share(found, "overhead") < 0.5
    assert share(found, "communication") > 0.15


@pytest.mark.parametrize(("workers", "commit"), [(0, ""), (4, ""), (0, "@eebfef3")])
def test_the_first_dialects_load(workers: int, commit: str, public_traces: Path):
    """H7, H10: HTA: "Could not find runtime index", and an AttributeError for a bare list; TraceLens fails on both."""
    found = diagnosis(public_traces / RESNET.format(workers, commit))
    assert found.steps == 6
    assert found.devices[0].kernels > 9_000


def test_idle_of_the_first_dialect(public_traces: Path):
    """torch-tb-profiler says 33.4 % of the steps wait for the loader, TraceLens fails; HTA: 39.4 % idle."""
    slow, quick = (diagnosis(public_traces / RESNET.format(workers, "")) for workers in (0, 4))
    seen = read(public_traces / RESNET.format(0, ""))
    rows = seen.links.device
    busy = union(seen.events.start_ns[rows], seen.events.end_ns[rows])
    first, last = int(seen.events.start_ns[rows].min()), int(seen.events.end_ns[rows].max())
    assert idle_ns(slow) == last - first - busy.length
    assert "D01" in [one.code for one in slow.findings]
    assert "D01" not in [one.code for one in quick.findings]


@pytest.mark.parametrize(
    "name",
    ["cpu_only__rank-34.Jul_15_10_52_41.1074.pt.trace", "cpu_only__rank-34.Jul_15_10_52_41.1074.pt.trace@b8cce2c",
     "rank_non_gpu__rank_non_gpu"],
)  # fmt: skip
def test_without_a_device_it_says_so(name: str, public_traces: Path):
    """H9: HTA: IndexError "single positional indexer is out-of-bounds"; TraceLens fails."""
    found = diagnosis(public_traces / "hta" / f"{name}.json.gz")
    assert any("no GPU events" in note for note in found.notes)
    assert (found.devices, found.regime, found.certainty) == ([], "unknown", "low")
    assert found.coverage.device_time is None
    assert found.findings == []


# -- TraceLens ------------------------------------------------------------


def test_a_collective_of_another_library_is_communication(public_traces: Path):
    """TraceLens: communication 0.02 %; HTA knows names that begin with nccl. `multimem_all_reduce` takes 2.1 ms."""
    found = diagnosis(public_traces / B200)
    (line,) = [one for one in found.budget if one.line == "communication"]
    assert line.ns / MS == pytest.approx(2.14, abs=0.05)
    events = read(public_traces / B200).events
    talks = communicates(events.names)
    rows = [row for row in events.of(EventKind.KERNEL).tolist() if talks[events.name[row]]]
    assert any("multimem_all_reduce" in events.name_of(row) for row in rows)


def test_idle_of_an_eager_decode(public_traces: Path):
    """HTA: 87.2 %. The device idles for 86.27 % of its span."""
    found = diagnosis(public_traces / B200)
    assert idle_ns(found) / found.devices[0].span_total_ns == pytest.approx(0.8627, abs=0.0001)
    assert (found.regime, found.certainty) == ("overhead", "high")


def test_softmax_is_priced(public_traces: Path):
    """TraceLens has no model for it: 53.7 % of this trace's device time is covered. It takes 68.7 of 158 ms."""
    found = diagnosis(public_traces / TIMESFORMER)
    rows = [one for one in found.ops if one.op == "aten::_softmax"]
    assert sum(one.ns for one in rows) / MS == pytest.approx(68.7, rel=0.002)
    for row in rows:
        assert row.bytes is not None
        assert row.floor_ns is not None
        assert row.bound == "memory"
        assert 0 < row.floor_ns < row.ns
    assert (found.coverage.device_time or 0) > 0.99


def test_a_whole_replayed_graph_is_not_idle_and_not_priced(public_traces: Path):
    """TraceLens#827: 97 % of the time collapses into one launch, and nothing says that the summary is incomplete."""
    found = diagnosis(public_traces / VLLM)
    assert (found.coverage.device_time or 0) < 0.05
    assert any("CUDA or HIP graph" in note for note in found.notes)
    assert (found.regime, found.certainty) == ("unknown", "low")
    assert len(found.ops) > 10


def test_the_names_of_deepseek_s_collectives():
    """H5: HTA: compute 99.6 %, overlap NaN; TraceLens: communication 0 ms. `dpsk::ep::` runs for 113 of 129 ms."""
    names = (
        "void dpsk::ep::dispatch<7168, 8>(int*)",
        "void deep_ep::intranode::combine<bf16>(int)",
        "gemm_fp8_fp8_bf16_nt",
    )
    assert communicates(names).tolist() == [True, True, False]


# -- torch's profile_analysis ------------------------------------------------------------


def matrix(*shape: int, dtype: str = "float32") -> Tensor:
    return Tensor(shape=shape, dtype=dtype)


def test_a_matmul_s_bytes_are_not_doubled():
    """profile_analysis: 2 * (MK + NK + MN) * 4: 0.2978 GB for a float32 mm of 0.1489 GB."""
    work = price(OpCall(name="aten::mm", inputs=(matrix(3_000, 4_000), matrix(4_000, 3_000)), kernels=("sgemm",)))
    assert work.bytes == 4 * (2 * 3_000 * 4_000 + 3_000 * 3_000)


def test_an_addition_s_output_counts():
    """profile_analysis counts inputs only: 0.00839 GB for the 0.01258 GB of a float32 add of 1024 by 1024."""
    work = price(OpCall(name="aten::add", inputs=(matrix(1024, 1024), matrix(1024, 1024)), kernels=("add",)))
    assert work.bytes == pytest.approx(0.01258e9, rel=1e-3)


def test_peaks_are_dense():
    """profile_analysis: H100 bf16 1,979 and tf32 989 TFLOP/s (with sparsity), L4 3,350 GB/s (an H100's)."""
    assert find("h100").matrix_flop_per_s["bfloat16"].value == pytest.approx(989.4e12, rel=0.001)
    assert find("h100").matrix_flop_per_s["tf32"].value == pytest.approx(494.7e12, rel=0.001)
    bandwidth = find("l4").memory_bytes_per_s
    assert bandwidth is not None
    assert bandwidth.value == pytest.approx(300e9)


@pytest.mark.parametrize(
    ("driver", "gib", "named"),
    [
        ("NVIDIA H100 80GB HBM3", 79.2, "H100"),
        ("NVIDIA A100-SXM4-80GB", 79.2, "A100"),
        ("NVIDIA H200", 139.8, "H200"),
        ("NVIDIA B200", 178.4, "B200"),
        ("Tesla V100-SXM2-32GB", 31.7, "V100"),
        ("AMD Instinct MI300X", 191.9, "MI300X"),
    ],
)
def test_names_as_drivers_give_them_match(driver: str, gib: float, named: str):
    """profile_analysis knows seven names and compares them exactly: each of these is None there."""
    assert match_device(driver, int(gib * 2**30)).machine.name.startswith(named)
