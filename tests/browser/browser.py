"""Chromium for a test, driven from a separate environment that has Playwright."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.peers import environment
from tests.servers import skip

FOLDER = Path(__file__).parent


class Browser:
    """Sends commands to the driver."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, name: str, *arguments: str) -> Any:  # noqa: ANN401 - any JSON value
        """Returns the result of a command. Raises AssertionError: it failed; the message has the text of the page."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps([name, *arguments])}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the driver ended at {name} {arguments}"
        answer = json.loads(line)
        assert "error" not in answer, f"{name} {arguments}: {answer['error']}"
        return answer["result"]

    def text(self, selector: str) -> str:
        """Returns the text of the first element that a selector finds."""
        return str(self("evaluate", f"document.querySelector({json.dumps(selector)}).innerText"))

    def wait_for_text(self, selector: str, text: str) -> None:
        """Waits until an element has a text."""
        found = f"(document.querySelector({json.dumps(selector)})?.textContent || '')"
        self("wait", f"{found}.includes({json.dumps(text)})")

    def check_in_both_schemes(self) -> None:
        """Raises AssertionError: the page breaks a rule of WCAG, such as contrast, in light or in dark colours."""
        for scheme in ("light", "dark"):
            self("scheme", scheme)
            found = self("check")
            assert not found, f"{scheme}: {found}"


@contextlib.contextmanager
def started_browser() -> Iterator[Browser]:
    """Runs Chromium; skips the test where there is none."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        skip("there is no Chromium: apt install chromium")
    programs = environment.make_at(environment.FOLDER / "browser", FOLDER / "requirements.txt", [], print)
    command = [str(programs / "python"), "-P", str(FOLDER / "driver.py"), chromium]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Browser(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=20)


async def in_thread(browser: Browser, *command: str) -> Any:  # noqa: ANN401 - any JSON value
    """Sends a command to the browser while the event loop goes on."""
    return await asyncio.to_thread(browser, *command)


async def wait_for_text(browser: Browser, selector: str, text: str) -> None:
    """Waits until an element has a text, while the event loop goes on."""
    await asyncio.to_thread(browser.wait_for_text, selector, text)


async def wait_for_status(browser: Browser, text: str) -> None:
    """Waits until the line of status has a text."""
    await wait_for_text(browser, "#status", text)


async def check_in_both_schemes(browser: Browser) -> None:
    """Does as `Browser.check_in_both_schemes`, while the event loop goes on."""
    await asyncio.to_thread(browser.check_in_both_schemes)
