"""Category -> kind: the one place that knows the dialects of Kineto and its relatives (2021 to today)."""

from __future__ import annotations

from gobrrr.model.events import Kind

CATEGORY: dict[str, Kind] = {
    "cpu_op": Kind.OP,
    "operator": Kind.OP,  # 2021
    "user_annotation": Kind.ANNOTATION,
    "python_function": Kind.PYTHON,
    "cuda_runtime": Kind.RUNTIME,  # ROCm's HIP calls are recorded under it too
    "cuda_driver": Kind.RUNTIME,
    "runtime": Kind.RUNTIME,  # 2021
    "hip_runtime": Kind.RUNTIME,
    "hip_driver": Kind.RUNTIME,
    "mtia_runtime": Kind.RUNTIME,
    "xpu_runtime": Kind.RUNTIME,
    "xpu_driver": Kind.RUNTIME,
    "glow_runtime": Kind.RUNTIME,
    "privateuse1_runtime": Kind.RUNTIME,
    "privateuse1_driver": Kind.RUNTIME,
    "hpu_op": Kind.RUNTIME,  # Kineto's ActivityType.h: "HPU host side runtime event"
    "cuda_sync": Kind.SYNC,
    "xpu_sync": Kind.SYNC,
    "overhead": Kind.OVERHEAD,
    "kernel": Kind.KERNEL,
    "concurrent_kernel": Kind.KERNEL,
    "mtia_ccp_events": Kind.KERNEL,
    "gpu_memcpy": Kind.MEMCPY,
    "memcpy": Kind.MEMCPY,  # 2021
    "gpu_memset": Kind.MEMSET,
    "memset": Kind.MEMSET,  # 2021
    "gpu_user_annotation": Kind.GPU_ANNOTATION,
}

DEVICE_WAITS = frozenset({"event_wait"})
"""Names of device-side events that are waits, not work (MTIA's command processor records them beside its jobs)."""


def kind_of(category: object) -> Kind:
    """The kind of an event of this category, in any case of letters; `Kind.OTHER` for one that is not known."""
    if not isinstance(category, str):
        return Kind.OTHER
    return CATEGORY.get(category) or CATEGORY.get(category.lower(), Kind.OTHER)
