"""Draw docs/page.png: the verdict, budget, roofline and timeline of the page for a shipped trace, 1280 px wide, light.

Needs playwright and a Chromium on the path (or in GOBRRR_CHROMIUM).
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import gobrrr

ROOT = Path(__file__).resolve().parent.parent
TRACE = ROOT / "src" / "gobrrr" / "data" / "h100" / "gpt_eager_attn.faulty.json.gz"
TARGET = ROOT / "docs" / "page.png"
WIDTH = 1280
SHOWN = ("verdict", "budget", "roofline", "timeline")
MOST_BYTES = 400_000


def main() -> int:
    """Draw it; 1 where there is no browser or the picture is too large."""
    path = os.environ.get("GOBRRR_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        print("no Chromium: name one in GOBRRR_CHROMIUM", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(gobrrr.html(gobrrr.diagnose(TRACE)), encoding="utf-8")
        draw(path, page)
    size = TARGET.stat().st_size
    print(f"{TARGET.relative_to(ROOT)}: {size / 1000:.0f} kB")
    return int(size > MOST_BYTES)


def draw(browser: str, page: Path) -> None:
    """A picture of the sections in `SHOWN`."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        view = chromium.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        view.goto(page.as_uri())
        others = ", ".join(["footer", f"main > section{''.join(f':not(#{name})' for name in SHOWN)}"])
        view.add_style_tag(content=f"{others} {{ display: none; }} main {{ padding-bottom: 0.5rem; }}")
        view.wait_for_timeout(300)
        view.screenshot(path=TARGET, full_page=True)
        chromium.close()


if __name__ == "__main__":
    sys.exit(main())
