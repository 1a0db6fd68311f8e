"""The ratio of compute to bandwidth over the generations of data-centre GPUs, from the datasheet table."""

from __future__ import annotations

from gobrrr.envelope.tables import lines
from gobrrr.hardware import find
from gobrrr.model.envelope import Generation
from gobrrr.model.machine import Machine


def generations() -> tuple[Generation, ...]:
    """By year of announcement: dense 16-bit matrix FLOP/s, and float32 vector FLOP/s, over memory bytes/s."""
    made = (_generation(find(line["name"]), int(line["year"])) for line in lines("generations"))
    return tuple(generation for generation in made if generation is not None)


def _generation(machine: Machine, year: int) -> Generation | None:
    peaks = machine.matrix_flop_per_s
    matrix = peaks.get("bfloat16") or peaks.get("float16")  # the V100 has no bfloat16
    vector, memory = machine.vector_flop_per_s.get("float32"), machine.memory_bytes_per_s
    if matrix is None or vector is None or memory is None:
        return None
    return Generation(
        name=machine.name,
        vendor=machine.vendor,
        year=year,
        matrix_flop_per_s=matrix.value,
        vector_flop_per_s=vector.value,
        memory_bytes_per_s=memory.value,
        matrix_ratio=matrix.value / memory.value,
        vector_ratio=vector.value / memory.value,
    )
