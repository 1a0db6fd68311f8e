"""Category -> kind: the one place that knows the dialects of Kineto and its relatives (2021 to today)."""

from __future__ import annotations

from gobrrr.model.events import EventKind

CATEGORY: dict[str, EventKind] = {
    "cpu_op": EventKind.OP,
    "operator": EventKind.OP,  # 2021
    "user_annotation": EventKind.ANNOTATION,
    "python_function": EventKind.PYTHON,
    "cuda_runtime": EventKind.RUNTIME,  # ROCm's HIP calls are recorded under it too
    "cuda_driver": EventKind.RUNTIME,
    "runtime": EventKind.RUNTIME,  # 2021
    "hip_runtime": EventKind.RUNTIME,
    "hip_driver": EventKind.RUNTIME,
    "mtia_runtime": EventKind.RUNTIME,
    "xpu_runtime": EventKind.RUNTIME,
    "xpu_driver": EventKind.RUNTIME,
    "glow_runtime": EventKind.RUNTIME,
    "privateuse1_runtime": EventKind.RUNTIME,
    "privateuse1_driver": EventKind.RUNTIME,
    "hpu_op": EventKind.RUNTIME,  # Kineto's ActivityType.h: "HPU host side runtime event"
    "cuda_sync": EventKind.SYNC,
    "xpu_sync": EventKind.SYNC,
    "overhead": EventKind.OVERHEAD,
    "kernel": EventKind.KERNEL,
    "concurrent_kernel": EventKind.KERNEL,
    "mtia_ccp_events": EventKind.KERNEL,
    "gpu_memcpy": EventKind.MEMCPY,
    "memcpy": EventKind.MEMCPY,  # 2021
    "gpu_memset": EventKind.MEMSET,
    "memset": EventKind.MEMSET,  # 2021
    "gpu_user_annotation": EventKind.GPU_ANNOTATION,
}

DEVICE_WAITS = frozenset({"event_wait"})
"""Names of device-side events that are waits, not work (MTIA's command processor records them beside its jobs)."""


def kind_of(category: object) -> EventKind:
    """The kind of an event of this category, in any case of letters; `Kind.OTHER` for one that is not known."""
    if not isinstance(category, str):
        return EventKind.OTHER
    return CATEGORY.get(category) or CATEGORY.get(category.lower(), EventKind.OTHER)
