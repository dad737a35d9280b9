"""The console in Chromium: what it shows of a cluster, of hostile names, and of what does not answer."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from shared import api_keys, consumer
from shared.messages import EMBED, Heartbeat
from tests.browser.browser import Browser, check_in_both_schemes, in_thread, wait_for_status
from tests.browser.conftest import Served, connections_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.browser, pytest.mark.timeout(180), pytest.mark.leaves_anything]

HOSTILE = {
    "<img src=x onerror=alert(1)>": "<img src=x onerror=alert(1)>",
    "<script>alert(2)</script>": "<script>alert(2)</script>",
    "gpu\u202e3-txet": "gpu\\u202e3-txet",
    "a\x00b\x1b[31mred\n": "a\\u0000b\\u001b[31mred\\u000a",
    "${alert(3)}": "${alert(3)}",
}
"""Names of workers, and how the console shows them."""


async def test_names_are_text_and_all_can_read_them(served: Served, browser: Browser) -> None:
    """HTML, scripts and control characters of workers are shown as such; no rule of WCAG is broken."""
    connections = connections_of(served.cluster)
    worker = connections.connection("worker")
    for name in HOSTILE:
        beat = Heartbeat(name, "h", 1, name, name, 3, "ready", 9.0, 1, 1, 0, ops=(EMBED,), revision=name)
        beat = replace(beat, failing="<i>ValueError</i>" if "$" in name else "")
        await consumer.heartbeat(worker, connections.keys, beat, 60_000)
    await in_thread(browser, "open", f"{served.gateway.url}/console", "light")
    await in_thread(browser, "wait", f"document.querySelectorAll('#workers tr').length === {len(HOSTILE) + 1}")
    script = "[...document.querySelectorAll('#workers th bdi')].map((each) => each.textContent)"
    assert set(await in_thread(browser, "evaluate", script)) > set(HOSTILE.values())
    assert await in_thread(browser, "evaluate", "document.querySelectorAll('td *:not(bdi), td script').length") == 0
    await wait_for_status(browser, "workers lost")  # these workers send no second heartbeat
    await check_in_both_schemes(browser)
    assert await in_thread(browser, "events") == []
    for name in HOSTILE:
        await consumer.leave(worker, connections.keys, name)
    await connections.close()


async def test_all_can_read_the_first_page(served: Served, browser: Browser) -> None:
    """No rule of WCAG is broken."""
    await in_thread(browser, "open", f"{served.gateway.url}/", "light")
    await check_in_both_schemes(browser)


async def test_a_killed_worker_is_lost_in_words_and_colour(served: Served, browser: Browser) -> None:
    """Three seconds after its last heartbeat, also when Redis has forgotten it; the other one stays ready."""
    gateway, _, cluster = served
    killed = await cluster.start_worker(heartbeat_ttl_s=4)
    await wait_until(lambda: gateway.ready_workers(cluster.queue) == 2, "the gateway sees both")
    await in_thread(browser, "open", f"{gateway.url}/console", "light")
    await wait_for_status(browser, "Live: 1 queue, 2 workers ready")
    killed.kill()
    await wait_for_status(browser, "1 worker lost")
    rows = "[...document.querySelectorAll('#workers td.bad')].map((each) => each.textContent)"
    assert await in_thread(browser, "evaluate", rows) == ["lost: no heartbeat for 3 s; it was ready"]
    await wait_until(lambda: gateway.ready_workers(cluster.queue) == 1, "Redis has forgotten it")
    (row,) = await in_thread(browser, "evaluate", rows)
    assert row.startswith("lost: no heartbeat for ")
    assert await in_thread(browser, "evaluate", "document.querySelectorAll('#workers tr').length") == 2
    assert await in_thread(browser, "events") == []


async def test_it_says_that_its_numbers_are_old(served: Served, browser: Browser) -> None:
    """While the gateway hangs; after that it goes on. Its workers are not lost, as nothing is known of them."""
    gateway = served.gateway
    await in_thread(browser, "open", f"{gateway.url}/console", "dark")
    await wait_for_status(browser, "Live: 1 queue, 1 worker ready")
    gateway.program.signal(signal.SIGSTOP)
    try:
        await wait_for_status(browser, "these numbers are old")
        assert await in_thread(browser, "evaluate", "document.querySelectorAll('#workers td.bad').length") == 0
    finally:
        gateway.program.signal(signal.SIGCONT)
    await wait_for_status(browser, "Live: 1 queue, 1 worker ready")


async def test_it_asks_for_a_key(served: Served, browser: Browser) -> None:
    """By keyboard alone: it refuses a wrong key and one without the scope, in words, and sets no cookie."""
    connections = connections_of(served.cluster)
    keys = {scope: api_keys.new_key((scope,)) for scope in ("embed", "admin")}
    for key, _ in keys.values():
        await api_keys.add(connections.connection("keys"), key)
    await connections.close()
    await in_thread(browser, "open", f"{served.keyed.url}/console", "dark")
    await wait_for_status(browser, "needs an API key with the scope admin (401)")
    await check_in_both_schemes(browser)
    for entered, expected in (
        ("wrong", "not accepted (401)"),
        ("böse", "This is no API key"),
        (keys["embed"][1], "lacks the scope admin"),
        (keys["admin"][1], "Live: 1 queue, 1 worker ready"),
    ):
        await in_thread(browser, "enter", entered)
        await wait_for_status(browser, expected)
    assert await in_thread(browser, "evaluate", "document.querySelector('#key-form').hidden")
    kept = await in_thread(browser, "evaluate", "[document.cookie, localStorage.length, location.search]")
    assert kept == ["", 0, ""]


async def test_it_says_why_another_name_shows_nothing(served: Served, browser: Browser) -> None:
    """Without API keys; a form for a key, which the gateway would ignore, stays hidden."""
    port = served.gateway.url.rpartition(":")[2]
    await in_thread(browser, "open", f"http://other.localhost:{port}/console", "light")
    await wait_for_status(browser, "Without API keys this is for URLs with an address or localhost")
    assert await in_thread(browser, "evaluate", "document.querySelector('#key-form').hidden")
