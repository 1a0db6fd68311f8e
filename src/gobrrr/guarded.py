"""Parts of an answer that may fail: when one fails, the answer lacks that part alone and says so.

The traceback goes to the log (the logger "gobrrr", at DEBUG), which `--debug` prints.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

LOG = logging.getLogger("gobrrr")
"""The package's logger."""

STRICT = "GOBRRR_STRICT"
"""An environment variable. Where it is set, an error in a part is raised. The tests set it, so that no defect hides
behind a line of an answer."""

UNCHECKED = "could not be checked"
"""The line about a part that failed begins with this."""

MOST_ERROR_CHARACTERS = 200
"""Characters of an error's own text that are shown. Chosen, not measured."""

Made = TypeVar("Made")


def failed(part: str, error: Exception) -> str:
    """What an answer says about a part that failed: "could not be checked: KeyError: 'x'". Raises `error` under
    `STRICT`. `part` names the part in the log.
    """
    if os.environ.get(STRICT):
        raise error
    LOG.debug("%s %s", part, UNCHECKED, exc_info=error)
    text = " ".join(str(error).split())[:MOST_ERROR_CHARACTERS]
    return f"{UNCHECKED}: {type(error).__name__}{f': {text}' if text else ''}"


@dataclass
class GuardedParts:
    """Makes the parts of one answer. `failed`: the name of each part that failed, and what the answer says about it."""

    failed: dict[str, str] = field(default_factory=dict)

    def make(self, part: str, compute: Callable[[], Made], otherwise: Made) -> Made:
        """The result of `compute`; `otherwise` where it fails."""
        try:
            return compute()
        except Exception as error:
            self.failed[part] = failed(part, error)
            return otherwise
