"""How a record prints itself: the report layer registers its renderers here, so that imports only point down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_text: Callable[[Any], str] | None = None
_html: Callable[[Any], str] | None = None


def register(*, text: Callable[[Any], str] | None = None, html: Callable[[Any], str] | None = None) -> None:
    """Set the renderer behind `str(diagnosis)` (plain text) and the one behind its notebook view."""
    global _text, _html
    _text = text or _text
    _html = html or _html


def as_text(record: Any) -> str | None:
    """Plain text of a record; None where no renderer is registered."""
    return _text(record) if _text else None


def as_html(record: Any) -> str | None:
    """HTML of a record; None where no renderer is registered."""
    return _html(record) if _html else None
