"""torch's debug mode for synchronisations, switched without torch's warning that the mode is a prototype."""

from __future__ import annotations

import re
import warnings
from typing import Any

import torch

_PROTOTYPE = ("ignore", re.compile("Synchronization debug mode", re.IGNORECASE), Warning, None, 0)


def set_sync_mode(mode: int | str) -> None:
    """Set the mode: 0 is off, 1 warns of each synchronisation, 2 raises.

    torch warns once a process, and under `-W error` that is an exception. A program that sets the mode itself still
    gets its warning. The filter goes into the list itself: the module's functions would forget which of the program's
    warnings have been shown, and show them again.
    """
    filters: list[Any] = warnings.filters  # type: ignore[assignment]
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # else this call uses up the one warning
    filters.insert(0, _PROTOTYPE)
    try:
        torch.cuda.set_sync_debug_mode(mode)
    finally:
        filters.remove(_PROTOTYPE)
        torch.set_warn_always(always)
