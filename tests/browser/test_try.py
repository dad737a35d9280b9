"""The form of the console that sends a request: answers, errors, and the command that does the same."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from shared import api_keys
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests.browser.browser import Browser, check_in_both_schemes, in_thread, wait_for_status, wait_for_text
from tests.browser.conftest import Served
from tests.integration.gateway.gateway_cluster import vector_bytes

pytestmark = [pytest.mark.redis, pytest.mark.browser, pytest.mark.timeout(180), pytest.mark.leaves_anything]

HOSTILE = "<img src=x onerror=alert(1)> \u202e it's"
STATUS, ANSWER, CURL = "#try-status", "#try-answer", "#try-curl"

SHORTENED = {
    '{"output":18446744073709551615}': ['{"output": 18446744073709551615}'],
    '[[{"index":7,"value":0.5}],[]]': ["[", "  [", '    {"index": 7, "value": 0.5}', "  ]", "  []", "]"],
    json.dumps([["a"]] * 30): ["[", *["  [", '    "a"', "  ]"] * 20, "  … and 10 more", "]"],
    json.dumps("a\u202e" + "b" * 400): ['"a\\u202e' + "b" * 298 + '…"'],
}
"""Answers, and the lines that the page shows of them."""


@pytest_asyncio.fixture
async def page(served: Served, browser: Browser) -> AsyncIterator[Browser]:
    """The console, which offers the operations of the null model."""
    await in_thread(browser, "open", f"{served.gateway.url}/console", "light")
    await wait_for_text(browser, "#try-operation", "Embed")
    yield browser
    assert not [event for event in await in_thread(browser, "events") if "status of 4" not in event]


async def choose(browser: Browser, operation: str) -> None:
    """Chooses an operation by the keyboard, by the first letters of its name."""
    for letter in operation:
        await in_thread(browser, "press", "#try-operation", letter)
    chosen = "document.querySelector('#try-operation').selectedOptions[0].text"
    assert await in_thread(browser, "evaluate", chosen) == operation


async def send(browser: Browser, status: str) -> str:
    """Sends the form with the keyboard and returns the answer that it shows with this status."""
    await in_thread(browser, "press", "#try-form button", "Enter")
    await wait_for_text(browser, STATUS, status)
    return await in_thread(browser, "evaluate", f"document.querySelector('{ANSWER}').textContent") or ""


async def test_a_text_is_embedded_here_and_by_the_command(page: Browser) -> None:
    """The first numbers of its vector are shown, with their count; the command for curl gets the same vector."""
    await in_thread(page, "fill", "#try-text", HOSTILE)
    shown = await send(page, "200 in ")
    command = await in_thread(page, "evaluate", f"document.querySelector('{CURL}').textContent")
    answer = await asyncio.to_thread(subprocess.run, ["bash", "-c", command], capture_output=True, check=True)
    vector = json.loads(answer.stdout)["embedding"]
    first = ", ".join(map(str, vector[:8]))
    assert shown == f'{{\n  "embedding": [{first}, …] (384 numbers)\n}}'
    assert len(vector_bytes(vector)) == 4 * 384
    await check_in_both_schemes(page)


async def test_documents_are_ranked_and_stay_text(page: Browser) -> None:
    """The best one is the first; markup and control characters of it are shown as such."""
    await choose(page, "Rerank")
    await in_thread(page, "fill", "#try-text", HOSTILE)
    await in_thread(page, "fill", "#try-documents", f"another\n\n{HOSTILE}\n")
    lines = (await send(page, "200 in ")).splitlines()
    assert '"text": "<img src=x onerror=alert(1)> \\u202e it\'s"' in lines[1]
    assert '"text": "another"' in lines[2]
    assert await in_thread(page, "evaluate", "document.querySelectorAll('#try pre *').length") == 0
    await check_in_both_schemes(page)


async def test_an_error_is_shown_in_the_words_of_the_gateway(page: Browser) -> None:
    """With its status, and without the answer before it."""
    await send(page, "200 in ")
    await choose(page, "Rerank")
    await in_thread(page, "fill", "#try-documents", "")
    await send(page, "400 after ")
    await wait_for_text(page, STATUS, "`texts` cannot be empty")
    assert await in_thread(page, "evaluate", f"document.querySelector('{ANSWER}').hidden")


async def test_any_answer_is_shown_in_short(served: Served, browser: Browser) -> None:
    """Of long lists the first elements, of long texts the first characters, of large integers all digits."""
    await in_thread(browser, "open", f"{served.gateway.url}/", "light")
    for answer, expected in (*SHORTENED.items(), (json.dumps([[[["a"] * 20] * 20] * 20]), None)):
        module = "import('/docs/static/console_shorten.js')"
        script = f"{module}.then(({{ parse, shorten }}) => shorten(parse({json.dumps(answer)})).split('\\n'))"
        lines = await in_thread(browser, "evaluate", script)
        assert lines == expected if expected is not None else (len(lines), lines[-1]) == (201, "…")


async def test_the_command_names_no_key(served: Served, browser: Browser) -> None:
    """It takes the key from the environment; without the scope for it, the request is refused in words."""
    connections = QueueConnections(QueueSettings(redis_url=served.cluster.redis_url), served.cluster.queue, "test")
    key, secret = api_keys.new_key(("admin",))
    await api_keys.add(connections.connection("keys"), key)
    await connections.close()
    await in_thread(browser, "open", f"{served.keyed.url}/console", "dark")
    await wait_for_status(browser, "needs an API key")
    await in_thread(browser, "enter", secret)
    await wait_for_text(browser, CURL, "curl")
    await send(browser, "403 after ")
    await wait_for_text(browser, STATUS, "lacks the scope embed")
    command = await in_thread(browser, "evaluate", f"document.querySelector('{CURL}').textContent")
    assert '-H "Authorization: Bearer $REDBATCH_API_KEY"' in command
    assert secret not in command
