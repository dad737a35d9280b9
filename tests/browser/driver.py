"""Drives Chromium: reads commands as lines of JSON, and prints the result of each as a line."""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from typing import Any

from playwright.sync_api import Browser, Error, Page, sync_playwright

AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
"""axe-core: it checks a page against WCAG."""

VIOLATIONS = """async () => {
  const { violations } = await axe.run({rules: {"target-size": {enabled: true}}, resultTypes: ["violations"]});
  return violations.map((rule) =>
    `${rule.impact}: ${rule.id}: ${rule.help}: ${rule.nodes.map((node) => node.target.join(" ")).join(", ")}`);
}"""


class Tab:
    """One page, with what it reports: errors, dialogs, and requests to other origins."""

    def __init__(self, browser: Browser, url: str, scheme: str) -> None:
        self._context = browser.new_context(color_scheme=scheme)
        self._page: Page = self._context.new_page()
        self._events: list[str] = []
        origin = "/".join(url.split("/")[:3])
        self._page.on("pageerror", lambda error: self._events.append(f"error: {error}"))
        self._page.on("dialog", lambda dialog: self._events.append(f"dialog: {dialog.message}"))
        self._page.on("console", lambda entry: self._events.append(f"console: {entry.text}"))
        self._page.on("request", lambda request: self._note(request.url, origin))
        self._page.goto(url)

    def _note(self, url: str, origin: str) -> None:
        if not url.startswith(f"{origin}/"):
            self._events.append(f"request: {url}")

    def evaluate(self, script: str) -> Any:  # noqa: ANN401 - any JSON value
        """Returns the value of an expression in the page."""
        return self._page.evaluate(script)

    def wait(self, script: str) -> None:
        """Waits until an expression is true, at most 20 s. The page's policy forbids to evaluate text."""
        self._page.wait_for_function(f"() => {script}", timeout=20_000, polling=20)

    def enter(self, text: str) -> None:
        """Types into the field that has the focus, as a person without a mouse does."""
        self._page.keyboard.type(text)
        self._page.keyboard.press("Enter")

    def fill(self, selector: str, text: str) -> None:
        """Replaces the text of a field."""
        self._page.fill(selector, text)

    def click(self, selector: str) -> None:
        """Clicks on the first element that a selector of Playwright finds, within 20 s."""
        self._page.locator(selector).first.click(timeout=20_000)

    def press(self, selector: str, key: str) -> None:
        """Moves the focus to an element and presses a key, as a person without a mouse does."""
        self._page.locator(selector).first.press(key, timeout=20_000)

    def scheme(self, name: str) -> None:
        """Changes the colours that a person prefers: light or dark."""
        self._page.emulate_media(color_scheme=name)

    def check(self) -> list[str]:
        """Returns what axe-core finds wrong in the page; the protocol of the debugger passes the page's policy."""
        if not self._page.evaluate("'axe' in window"):
            self._page.evaluate(AXE)
        found: list[str] = self._page.evaluate(VIOLATIONS)
        return found

    def resize(self, width: str, height: str) -> None:
        """Changes the size of the window, in pixels."""
        self._page.set_viewport_size({"width": int(width), "height": int(height)})

    def screenshot(self, path: str) -> None:
        """Writes a picture of the whole page."""
        self._page.screenshot(path=path, full_page=True)

    def close(self) -> None:
        """Closes the page."""
        self._context.close()

    def events(self) -> list[str]:
        """Returns what the page has reported."""
        return self._events


def main() -> None:
    """Runs until the input ends. Each answer has `result`, or `error` with the text that the page shows."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=sys.argv[1], args=["--no-sandbox"])
        tab: Tab | None = None
        for line in sys.stdin:
            name, *arguments = json.loads(line)
            answer: dict[str, Any] = {}
            try:
                if name == "open":
                    if tab is not None:
                        tab.close()
                    tab = Tab(browser, *arguments)
                answer["result"] = None if name == "open" else getattr(tab, name)(*arguments)
            except Error as error:
                answer["error"] = f"{error}\n{tab.evaluate('document.body.innerText') if tab else ''}"
            print(json.dumps(answer), flush=True)  # noqa: T201 - its answer


main()
