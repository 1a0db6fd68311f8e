"""The catalogue behind `gobrrr explain`: conditions by code, treatments by name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from gobrrr.errors import UsageError
from gobrrr.report.text import sanitise


def codes() -> dict[str, dict[str, str]]:
    """What `explain` can explain: {"conditions": {code: title}, "treatments": {name: title}}."""
    conditions, treatments = _catalogues()
    return {
        "conditions": {condition.code: condition.title for condition in conditions},
        "treatments": {treatment.name: _title(treatment) for treatment in treatments},
    }


def explain(code: str) -> str:
    """Explain a condition ("O01") or a treatment, in Markdown. Raises UsageError, which names similar codes."""
    conditions, treatments = _catalogues()
    wanted = _key(code)
    for condition in conditions:
        if _key(condition.code) == wanted:
            return _headed(f"{condition.code}: {condition.title}", condition.explanation)
    for treatment in treatments:
        if _key(treatment.name) == wanted:
            text = _headed(treatment.name, treatment.explanation)
            paste = treatment.code_to_paste.strip()
            return text if not paste or paste in text else f"{text}\n\n```python\n{paste}\n```"
    raise UsageError(
        _unknown_code(code, [condition.code for condition in conditions] + [treatment.name for treatment in treatments])
    )


def _catalogues() -> tuple[Sequence[Any], Sequence[Any]]:
    from gobrrr import conditions, treatments

    return conditions.catalogue(), treatments.catalogue()


def _key(code: str) -> str:
    return code.strip().lower().replace("-", "_")


def _headed(title: str, explanation: str) -> str:
    text = explanation.strip()
    return text if text.startswith("# ") else f"# {title}\n\n{text}"


def _title(treatment: Any) -> str:
    """A treatment's title, or the first line of its explanation."""
    first = str(treatment.explanation).strip().splitlines() or [""]
    return str(getattr(treatment, "title", "") or first[0].lstrip("# ").rstrip("."))


def _unknown_code(code: str, known: Sequence[str]) -> str:
    by_key = {_key(name): name for name in known}
    close = [by_key[key] for key in difflib.get_close_matches(_key(code), by_key, n=4, cutoff=0.5)]
    hint = f"did you mean {', '.join(close)}?" if close else "gobrrr explain lists all codes"
    return f"{sanitise(code)}: no condition or treatment of that name; {hint}"
