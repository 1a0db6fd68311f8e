"""A headless Chromium for the tests of the page: the system's, driven by playwright; tests skip where it is missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


def executable() -> str | None:
    """A Chromium: $GOBRRR_CHROMIUM, else the first that is on the path."""
    return os.environ.get("GOBRRR_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def browser() -> Iterator[Any]:
    """A browser of playwright's; skips the test where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = executable()
    if path is None:
        pytest.skip(f"no Chromium on this machine ({', '.join(NAMES)}); name one in GOBRRR_CHROMIUM")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield found
        finally:
            found.close()


class Opened:
    """A page that is open, with what it complained of and asked for."""

    def __init__(self, browser: Any, file: Path, **options: Any) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.page.on("console", lambda message: self._console(message))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())
        if options.get("java_script_enabled", True):
            self.settle()

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def js(self, code: str, argument: Any = None) -> Any:
        """The value of a JavaScript expression or function."""
        return self.page.evaluate(code, argument)
