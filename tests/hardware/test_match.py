"""Matching: the driver's names, the short ones, properties as a labelled last resort, and refusals."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gobrrr.errors import UnknownDeviceError
from gobrrr.hardware import find, known, match_device
from gobrrr.hardware.table import rows

DRIVER_NAMES = {
    "NVIDIA H100 80GB HBM3": "H100-SXM5-80GB",
    "NVIDIA H100 PCIe": "H100-PCIe-80GB",
    "NVIDIA H100 NVL": "H100-NVL-94GB",
    "NVIDIA H200": "H200-SXM5-141GB",
    "NVIDIA H200 NVL": "H200-NVL-141GB",
    "NVIDIA GH200 480GB": "GH200-96GB-HBM3",
    "NVIDIA A100-SXM4-80GB": "A100-80GB-SXM4",
    "NVIDIA A100-SXM4-40GB": "A100-40GB-SXM4",
    "A100-SXM4-40GB": "A100-40GB-SXM4",
    "NVIDIA A100 80GB PCIe": "A100-80GB-PCIe",
    "NVIDIA A100-PCIE-40GB": "A100-40GB-PCIe",
    "Tesla V100-SXM2-32GB": "V100-SXM2-32GB",
    "Tesla V100-SXM2-16GB": "V100-SXM2-16GB",
    "Tesla V100-PCIE-16GB": "V100-PCIe-16GB",
    "Tesla T4": "T4",
    "NVIDIA A10": "A10",
    "NVIDIA L4": "L4",
    "NVIDIA L40S": "L40S",
    "NVIDIA B200": "B200-SXM-180GB",
    "NVIDIA GB200": "GB200-per-GPU",
    "NVIDIA GeForce RTX 4090": "RTX 4090",
    "AMD Instinct MI300X": "MI300X",
    "AMD Instinct MI300X VF": "MI300X",
    "AMD Instinct MI210": "MI210",
    "AMD Instinct MI250X": "MI250X (one GCD)",
}

SHORT_NAMES = {
    "h100": "H100-SXM5-80GB",
    "H100 PCIe": "H100-PCIe-80GB",
    "a100-80gb": "A100-80GB-SXM4",
    "A100_40GB": "A100-40GB-SXM4",
    "h200": "H200-SXM5-141GB",
    "b200": "B200-SXM-180GB",
    "mi300x": "MI300X",
    "MI-300X": "MI300X",
    "4090": "RTX 4090",
    "rtx4090": "RTX 4090",
    "v100": "V100-SXM2-32GB",
}

NOT_IN_THE_TABLE = [
    "NVIDIA H20",
    "H20",
    "NVIDIA H800",
    "NVIDIA A10G",
    "NVIDIA A800-SXM4-80GB",
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
    "NVIDIA GeForce RTX 4090 D",
    "NVIDIA GeForce RTX 4090 Laptop GPU",
    "Tesla V100S-PCIE-32GB",
    "NVIDIA H200X",
    "AMD Radeon Graphics",
    "ARTEMIS",
    "",
    "   ",
    "h",
]


@pytest.mark.parametrize(("name", "row"), DRIVER_NAMES.items())
def test_driver_name(name: str, row: str) -> None:
    match = match_device(name)
    assert (match.machine.name, match.machine.device_name, match.how, match.note) == (row, name, "name", "")


@pytest.mark.parametrize(("name", "row"), SHORT_NAMES.items())
def test_short_name(name: str, row: str) -> None:
    assert find(name).name == row


def test_a_short_name_that_several_cards_share_says_how_it_was_read() -> None:
    assert find("h100").notes[0] == "'h100' is read as H100-SXM5-80GB; there are also H100-PCIe-80GB, H100-NVL-94GB"
    assert "H200-NVL-141GB" in match_device("h200").note


@pytest.mark.parametrize("name", NOT_IN_THE_TABLE)
def test_what_the_table_lacks_is_refused(name: str) -> None:
    with pytest.raises(UnknownDeviceError) as caught:
        find(name)
    assert caught.value.known


def test_an_ambiguous_name_is_refused_with_the_candidates() -> None:
    with pytest.raises(UnknownDeviceError) as caught:
        find("a100")
    assert caught.value.known == ("A100-40GB-PCIe", "A100-40GB-SXM4", "A100-80GB-PCIe", "A100-80GB-SXM4")


def test_an_ambiguous_name_is_resolved_by_memory() -> None:
    assert match_device("a100", memory_bytes=84990623744).machine.name == "A100-80GB-SXM4"
    assert match_device("A100", memory_bytes=42297524224).machine.name == "A100-40GB-SXM4"


@pytest.mark.parametrize("memory_bytes", [42297524224, 42505273344])
def test_an_engineering_board_is_matched_by_its_properties_and_says_so(memory_bytes: int) -> None:
    match = match_device("NVIDIA A100-PG509-200", memory_bytes, (8, 0), 108)
    assert (match.machine.name, match.how) == ("A100-40GB-SXM4", "properties")
    assert match.machine.device_name == "NVIDIA A100-PG509-200"
    assert "39." in match.note
    assert "108 processors" in match.note


def test_an_engineering_board_without_properties_is_refused() -> None:
    with pytest.raises(UnknownDeviceError):
        find("NVIDIA A100-PG509-200")


def test_a_nameless_device_is_matched_by_its_properties_and_says_so() -> None:
    match = match_device("", 206141652992, (9, 4), 304)
    assert (match.machine.name, match.how, match.machine.device_name) == ("MI300X", "properties", None)
    assert match.note.startswith("the driver gives no name")


def test_properties_that_two_cards_share_decide_nothing() -> None:
    # An MI210 and one die of an MI250 both have 104 CUs, 64 GB and gfx90a.
    with pytest.raises(UnknownDeviceError):
        match_device("AMD Radeon Graphics", 68702699520, (9, 0), 104)
    with pytest.raises(UnknownDeviceError) as caught:
        match_device(None, 191503138816, (10, 0), 148)
    assert caught.value.known == ("B100-SXM", "B200-SXM-180GB")


def test_properties_never_overrule_a_name_that_says_something() -> None:
    with pytest.raises(UnknownDeviceError):
        match_device("NVIDIA H800", 85017493504, (9, 0), 132)


@pytest.mark.parametrize(
    ("memory_bytes", "compute", "processors", "reason"),
    [
        (206141652992, (9, 4), 38, "38 processors, where MI300X has 304: a partition?"),
        (25769803776, (9, 4), 304, "24.0 GiB, where MI300X has 192: a partition?"),
        (206141652992, (9, 5), 304, "capability 9.5, where MI300X has 9.4"),
    ],
)
def test_a_partition_is_not_its_card(memory_bytes: int, compute: tuple[int, int], processors: int, reason: str) -> None:
    with pytest.raises(UnknownDeviceError, match=re.escape(reason)):
        match_device("AMD Instinct MI300X", memory_bytes, compute, processors)


@pytest.mark.parametrize(
    ("name", "memory_bytes", "compute", "processors"),
    [
        ("NVIDIA H100 80GB HBM3", 85017493504, (9, 0), 132),
        ("NVIDIA A100-SXM4-80GB", 84990623744, (8, 0), 108),
        ("Tesla V100-SXM2-16GB", 16945512448, (7, 0), 80),
        ("NVIDIA B200", 191503138816, (10, 0), 148),
        ("AMD Instinct MI300X", 206141652992, (9, 4), 304),
        ("AMD Instinct MI210", 68702699520, (9, 0), 104),
    ],
)
def test_properties_of_real_traces_agree_with_the_row(
    name: str, memory_bytes: int, compute: tuple[int, int], processors: int
) -> None:
    assert match_device(name, memory_bytes, compute, processors).how == "name"


@pytest.mark.parametrize("name", known())
def test_every_name_of_the_table_is_found(name: str) -> None:
    assert find(name).name == name


def test_no_short_name_belongs_to_two_rows() -> None:
    shorts = [short for row in rows() for short in row.short_names.split("|")]
    assert len(shorts) == len(set(shorts))


@pytest.mark.parametrize("name", [*DRIVER_NAMES, *SHORT_NAMES])
def test_no_name_matches_two_patterns(name: str) -> None:
    assert sum(bool(re.fullmatch(row.device_regex, name)) for row in rows()) <= 1


@given(st.text())
@example("\x00")
@example("\uff48\uff11\uff10\uff10")
@example("[a-z]+(")
@example("h" * 100_000)
def test_any_name_is_found_or_refused(name: str) -> None:
    with contextlib.suppress(UnknownDeviceError):
        assert find(name).name in known()


@given(
    st.sampled_from([*DRIVER_NAMES, "", "AMD Radeon Graphics", "NVIDIA A100-PG509-200", "a100"]),
    st.none() | st.integers(-1, 2**60),
    st.none() | st.tuples(st.integers(-1, 20), st.integers(-1, 20)),
    st.none() | st.integers(-1, 1000),
)
def test_any_properties_match_or_are_refused(
    name: str, memory_bytes: int | None, compute: tuple[int, int] | None, processors: int | None
) -> None:
    with contextlib.suppress(UnknownDeviceError):
        match = match_device(name, memory_bytes, compute, processors)
        assert match.how == "name" or match.note


@given(st.sampled_from(sorted(DRIVER_NAMES)), st.text(min_size=1).filter(lambda text: text.strip()))
def test_a_longer_name_is_another_card(name: str, more: str) -> None:
    longer = f"{name} {more.strip()}"
    with contextlib.suppress(UnknownDeviceError):
        assert find(longer).name != DRIVER_NAMES[name] or longer in DRIVER_NAMES
