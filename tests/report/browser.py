"""A headless Chromium for the tests of the page: the system's, driven by playwright; tests skip where it is missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
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


class Browser:
    """A browser of playwright's whose tabs are used again: a new window costs two to three times what a page costs."""

    def __init__(self, started: Any) -> None:
        self._started = started
        self._free: list[Any] = []

    def tab(self, viewport: dict[str, int], color_scheme: str) -> Any:
        """A tab that nothing is open in."""
        page = self._free.pop() if self._free else self._started.new_page()
        page.set_viewport_size(viewport)
        page.emulate_media(media="null", color_scheme=color_scheme)
        page.mouse.move(0, 0)
        return page

    def without_scripts(self, viewport: dict[str, int], color_scheme: str) -> Any:
        """A tab of a window that runs no script."""
        return self._started.new_page(java_script_enabled=False, viewport=viewport, color_scheme=color_scheme)

    def take_back(self, page: Any) -> None:
        """The tab is free again, and nothing of its page is left."""
        page.evaluate("localStorage.clear()")
        page.goto("about:blank")
        self._free.append(page)


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser; skips the test where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = executable()
    if path is None:
        pytest.skip(f"no Chromium on this machine ({', '.join(NAMES)}); name one in GOBRRR_CHROMIUM")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield Browser(found)
        finally:
            found.close()


class Opened:
    """A page that is open, with what it complained of and asked for."""

    def __init__(self, browser: Browser, file: Path, *, viewport: dict[str, int] | None = None,
                 color_scheme: str = "light", java_script_enabled: bool = True) -> None:  # fmt: skip
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._browser, self._scripts = browser, java_script_enabled
        self._listeners: list[tuple[str, Callable[[Any], None]]] = []
        opener = browser.tab if java_script_enabled else browser.without_scripts
        self.page = opener(viewport or {"width": 1280, "height": 900}, color_scheme)
        self.on("console", self._console)
        self.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())
        if java_script_enabled:
            self.settle()

    def on(self, event: str, listener: Callable[[Any], None]) -> None:
        """Call `listener` at each `event` of the page, until it is closed."""
        self._listeners.append((event, listener))
        self.page.on(event, listener)

    def close(self) -> None:
        """The page is closed; its tab serves the next one."""
        for event, listener in self._listeners:
            self.page.remove_listener(event, listener)
        if self._scripts:
            self._browser.take_back(self.page)
        else:
            self.page.close()

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def js(self, code: str, argument: Any = None) -> Any:
        """The value of a JavaScript expression or function."""
        return self.page.evaluate(code, argument)
