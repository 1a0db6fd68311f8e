"""Parts of an answer that may fail: one that does costs the answer that part alone, and the answer says so.

The traceback goes to the log (the logger "gobrrr", at DEBUG), which `--debug` prints.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

LOG = logging.getLogger("gobrrr")

STRICT = "GOBRRR_STRICT"
"""A variable of the environment. Where it is set, what fails in a part is raised: the tests set it, because a defect
that is no more than a line of an answer is soon overlooked."""

UNCHECKED = "could not be checked"
"""How the line of a part that failed begins."""

MOST_SAID = 200
"""Characters of an error's own text."""

Made = TypeVar("Made")


def failed(part: str, error: Exception) -> str:
    """What an answer says of a part that failed: "could not be checked: KeyError: 'x'". Raises `error` under `STRICT`.

    `part` names it in the log.
    """
    if os.environ.get(STRICT):
        raise error
    LOG.debug("%s %s", part, UNCHECKED, exc_info=error)
    text = " ".join(str(error).split())[:MOST_SAID]
    return f"{UNCHECKED}: {type(error).__name__}{f': {text}' if text else ''}"


@dataclass
class Parts:
    """Makes the parts of one answer. `failed`: the name of each one that failed, and what the answer says of it."""

    failed: dict[str, str] = field(default_factory=dict)

    def make(self, part: str, made: Callable[[], Made], otherwise: Made) -> Made:
        """What `made` returns; `otherwise` where it fails."""
        try:
            return made()
        except Exception as error:
            self.failed[part] = failed(part, error)
            return otherwise
