"""Dead letters and jobs at the console in Chromium: what a person sees, and what the buttons do."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.browser.browser import Browser
from tests.integration.gateway.console_cluster import TEXT, Console, started_console, suspended
from tests.integration.gateway.job_client import JobClient

pytestmark = [pytest.mark.redis, pytest.mark.browser, pytest.mark.timeout(180), pytest.mark.leaves_anything]

HOSTILE = {
    "<img src=x onerror=alert(1)>": "<img src=x onerror=alert(1)>",
    "<script>alert(2)</script>": "<script>alert(2)</script>",
    "input\u202etxet": "input\\u202etxet",
    "a\x00b\x1b[31mred\n": "a\\u0000b\\u001b[31mred\\u000a",
}
"""Errors and names of workers, and how the page shows them."""

LETTERS, JOBS = "#letters-panel summary", "#jobs-panel summary"


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """Two gateways and a worker, for all tests."""
    with started_console(tmp_path_factory.mktemp("console")) as console:
        yield console


@pytest.fixture(autouse=True)
def no_letters(console: Console) -> Iterator[None]:
    """Deletes what a test has left of dead letters."""
    yield
    console.clear()


def open_panel(browser: Browser, console: Console, panel: str, key: str = "") -> None:
    """Opens the page of the gateway without keys, and a list in it, by keyboard; enters a key for actions."""
    browser("open", f"{console.open.url}/console", "light")
    browser("press", panel, "Enter")
    if key:
        browser("click", "#action-key")
        browser("enter", key)


def button(text: str, thing: str) -> str:
    """Returns the selector of a button by the label that a screen reader reads."""
    return f"button[aria-label={json.dumps(f'{text}: {thing}')}]"


def test_without_a_key_the_page_is_read_only(console: Console, browser: Browser) -> None:
    """It says so and what to do; there is no button. A key without the scope is refused in words."""
    letter_id = console.add_letter()
    open_panel(browser, console, LETTERS)
    browser.wait_for_text("#letters", letter_id)
    browser.wait_for_text("#read-only", "Read-only. Actions need an API key with the scope admin")
    browser("wait", "!document.querySelector('#read-only').hidden")
    assert browser("evaluate", "document.querySelectorAll('#letters button').length") == 0
    browser("click", "#action-key")
    browser("enter", console.keys["embed"])
    browser.wait_for_text("#action-status", "Refused (403): This key lacks the scope admin")
    assert browser("evaluate", "document.querySelectorAll('#letters button').length") == 0


def test_hostile_texts_are_text(console: Console, browser: Browser) -> None:
    """HTML, scripts, and characters that turn or hide text, in errors, workers and tenants; all of it can be read."""
    for each in HOSTILE:
        console.add_letter(error=each, worker=each)
    open_panel(browser, console, LETTERS, console.keys["admin"])
    browser("wait", f"document.querySelectorAll('#letters tr').length === {len(HOSTILE)}")
    browser("wait", "document.querySelector('#letters button')")
    for column in (5, 6):
        cells = f"[...document.querySelectorAll('#letters tr')].map((row) => row.cells[{column}].textContent)"
        assert sorted(browser("evaluate", cells)) == sorted(HOSTILE.values())
    assert browser("evaluate", "document.querySelectorAll('td *:not(bdi):not(button)').length") == 0
    browser.check_in_both_schemes()
    assert browser("events") == []


def test_texts_are_hidden_until_they_are_requested(console: Console, browser: Browser) -> None:
    """A separate request, which is in the log; and the page forgets them again."""
    letter_id = console.add_letter()
    open_panel(browser, console, LETTERS, console.keys["admin"])
    browser("wait", "document.querySelector('#letters button')")
    assert TEXT not in browser("evaluate", "document.documentElement.textContent")
    assert "shown" not in [each["outcome"] for each in console.audit()]
    browser("click", button("Show text", f"dead letter {letter_id}"))
    browser.wait_for_text("#text-list", TEXT)
    assert browser("evaluate", "document.activeElement.id") == "text-title"
    assert console.audit()[-1] | {"action": "show text", "target": letter_id} == console.audit()[-1]
    browser("press", "#text-close", "Enter")
    browser("wait", f"!document.documentElement.textContent.includes({json.dumps(TEXT)})")
    assert browser("events") == []


def test_a_requeued_letter_is_answered_and_disappears(console: Console, browser: Browser) -> None:
    """Of either shard; the outcome is in words. Another letter stays until it is deleted, which takes two presses."""
    first, second = console.add_letter(), console.add_letter(shard=1)
    open_panel(browser, console, LETTERS, console.keys["admin"])
    browser("click", button("Requeue", f"dead letter {second}"))
    browser.wait_for_text("#action-status", "answered, so this dead letter is deleted.")
    browser("wait", f"!document.querySelector('#letters').textContent.includes({json.dumps(second)})")
    browser("press", button("Delete", f"dead letter {first}"), "Enter")
    browser.wait_for_text("#action-status", "Press again to confirm: delete")
    assert [each["id"] for each in console.letters()["letters"]] == [first]
    browser("press", button("Confirm: delete", f"dead letter {first}"), "Enter")
    browser.wait_for_text("#letters", "no dead letters")
    assert [each["outcome"] for each in console.audit()[-2:]] == ["answered", "deleted"]
    assert browser("events") == []


def test_a_job_is_cancelled(console: Console, browser: Browser) -> None:
    """After a second press; the list shows its new state, and the status the outcome."""
    jobs = JobClient(console.open, x_tenant="search")
    with suspended(console.worker):
        job_id = jobs.job_of(jobs.post({"texts": ["a", "b"]}))["id"]
        open_panel(browser, console, JOBS)
        browser.wait_for_text("#job-list", f"{job_id.rpartition('.')[2][:6]}…")
        assert job_id not in browser.text("#job-list")
        browser("click", "#action-key")
        browser("enter", console.keys["admin"])
        browser("click", button("Cancel", f"job {job_id}"))
        browser("click", button("Confirm: cancel", f"job {job_id}"))
        browser.wait_for_text("#action-status", "cancelled, 0 of 2 inputs were done")
    browser.wait_for_text("#job-list", "cancelled")
    assert browser("events") == []
