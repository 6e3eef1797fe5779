"""A real browser for pages, where there is one: Chromium, driven by Playwright, with a new profile each time."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).parents[3]
PACKAGES = CHECKOUT / "build/browser"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Nothing but the page, and nothing of the machine's graphics.
SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    sys.path.append(str(PACKAGES))
    try:
        driver = pytest.importorskip(
            "playwright.sync_api", reason="Playwright is missing: tools/browser.sh build/browser gets it."
        )
        path = next(filter(None, map(shutil.which, BROWSERS)), None)
        if path is None:
            pytest.skip("There is no Chromium here. Install the package chromium.")
        with driver.sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=SWITCHES)
            yield browser
            browser.close()
    finally:
        sys.path.remove(str(PACKAGES))


@pytest.fixture
def show(chromium: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Show a page. At the end of the test nothing may have been complained about or asked of a network."""
    complaints: list[str] = []
    contexts = []

    def shown(html: str, *, width: int = 1440, height: int = 900, dark: bool = False, fragment: str = "") -> Any:
        file = tmp_path / "page.html"
        file.write_text(html, encoding="utf-8")
        context = chromium.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        contexts.append(context)
        # A machine that is busy with labs takes its time.
        context.set_default_timeout(300_000)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on(
            "request",
            lambda request: (
                complaints.append(f"request: {request.url}") if request.url[:5] in ("http:", "https") else None
            ),
        )
        page.goto(f"file://{file}{fragment}")
        return page

    yield shown
    for context in contexts:
        context.close()
    assert complaints == []
