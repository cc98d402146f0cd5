"""The console's page in a headless Chromium, driven as people use it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from tests.support.hang import HANG_SECONDS

DESKTOP: Final = {"width": 1280, "height": 900}
PHONE: Final = {"width": 390, "height": 844}
EXPECTED: Final = ("Failed to load resource",)
"""Lines of the browser's console that a refused request makes."""


def why_not() -> str:
    """Why there is no browser; empty if there is one."""
    missing = [name for name in ("chromium",) if shutil.which(name) is None]
    missing += [name for name in ("playwright",) if find_spec(name) is None]
    return f"{', '.join(missing)} is not installed: script/console" if missing else ""


class ConsolePage:
    """One tab."""

    def __init__(self, tab: Any, url: str, screenshots: Path) -> None:
        self.tab = tab
        self._url = url
        self._screenshots = screenshots
        self.problems: list[str] = []
        """What the browser complains about: scripts that fail or are blocked, and dialogs that a script has opened."""
        tab.on("console", self._note)
        tab.on("pageerror", lambda error: self.problems.append(str(error)))
        tab.on("dialog", self._dismiss)
        tab.set_default_timeout(1000 * HANG_SECONDS)

    def _note(self, message: Any) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(EXPECTED):
            self.problems.append(message.text)

    def _dismiss(self, dialog: Any) -> None:
        self.problems.append(dialog.message)
        dialog.dismiss()

    def log_in(self, user: str, password: str) -> None:
        self.tab.goto(self._url)
        self.tab.fill("input[name=user]", user)
        self.tab.fill("input[name=password]", password)
        self.tab.select_option("select[name=mechanism]", "PLAIN")
        self.tab.click("button.primary")
        self.tab.wait_for_selector("nav a.current")

    def open(self, address: str, heading: str) -> None:
        self.tab.evaluate("address => { location.hash = address; }", f"#/{address}")
        self.see(f"h1:has-text('{heading}')")

    def see(self, selector: str, state: str = "visible") -> None:
        """Wait until it is shown. If that does not happen, the failure says what is shown instead."""
        try:
            self.tab.wait_for_selector(selector, state=state)
        except Exception as error:
            self.photograph("not-seen")
            shown = self.tab.evaluate("document.body.innerText")
            raise AssertionError(f"{error}\nat {self.tab.url}\nproblems: {self.problems}\n{shown}") from error

    def click(self, text: str) -> None:
        self.tab.click(f"main button:text-is('{text}')")

    def fill_dialog(self, action: str, **values: str) -> None:
        """Fill the inputs by their names, submit, and wait until the dialog is closed. Fails if it shows an error."""
        self.submit(action, **values)
        self.see("body:not(:has(dialog)), dialog .failure:not(:empty)")
        refused = self.tab.locator("dialog .failure:not(:empty)").all_inner_texts()
        assert not refused, f"{action} {values}: {refused[0]}"

    def submit(self, action: str, **values: str) -> None:
        for name, value in values.items():
            control = self.tab.locator(f"dialog [name='{name}']")
            if control.evaluate("each => each.tagName") == "SELECT":
                control.select_option(value)
            else:
                control.fill(value)
        self.tab.click(f"dialog button:text-is('{action}')")

    def photograph(self, name: str) -> None:
        self.tab.screenshot(path=str(self._screenshots / f"{name}.png"), full_page=True)


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def screenshots(fallback: Path) -> Path:
    """The folder RAYLOG_SCREENSHOTS, to look at them, or a temporary one."""
    folder = Path(os.environ.get("RAYLOG_SCREENSHOTS", fallback))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
