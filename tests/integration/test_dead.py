"""`redbatch dead`: what it shows, what it hides, and what it does with ids that are none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from typer.testing import CliRunner

from redbatch.commands import app
from shared import consumer
from shared.codec import encode_body
from shared.messages import EMBED, Body, Draft
from shared.connection import Queue
from shared.settings import QueueSettings
from shared.producer import Submission
from tests.integration.queue.actors import BUDGET_MS, Gateway, Worker
from tests.users import as_user

pytestmark = [pytest.mark.redis, pytest.mark.leaves_dead_letters]

TEXTS = ("a secret of somebody", "another one \x1b[31m")
Dead = Callable[..., Any]


async def give_up(redis_url: str, queue_name: str, texts: Sequence[str], number: int) -> None:
    """Submits requests with these texts, claims them, and gives them up after three attempts."""
    queue = Queue(QueueSettings(redis_url=redis_url), queue_name, "test")
    try:
        worker = Worker(queue.link("worker"), queue.keys, "gpu-1")
        await consumer.join(worker.link, queue.keys)
        drafts = (Draft(0, len(texts), 10, encode_body(Body(EMBED, tuple(texts)))),)
        gateway = Gateway(queue.link("submit"), queue.keys)
        await gateway.add(*(Submission(f"request-{i}", drafts, BUDGET_MS) for i in range(number)))
        await worker.bury([each._replace(attempts=3) for each in await worker.claim()], most=100)
        await worker.leave()
    finally:
        await queue.close()


@pytest.fixture
def dead(redis_url: str, queue_name: str, monkeypatch: pytest.MonkeyPatch) -> Dead:
    """Runs `redbatch dead` with some arguments, on the test's queue."""
    monkeypatch.setenv("REDBATCH_REDIS_URL", as_user(redis_url, "admin"))
    monkeypatch.setenv("REDBATCH_QUEUE", queue_name)
    monkeypatch.setenv("COLUMNS", "160")
    asyncio.run(give_up(redis_url, queue_name, TEXTS, 3))
    return lambda *arguments, **options: CliRunner().invoke(app, ["dead", *arguments], **options)


def listed(dead: Dead) -> list[dict[str, object]]:
    """The dead letters as JSON, newest first."""
    return [json.loads(line) for line in dead("list", "--json").output.splitlines()]


def test_the_list_is_newest_first_and_says_why(dead: Dead) -> None:
    """With the number of all, and how to see those that it leaves out."""
    result = dead("list", "--most", "2")
    assert result.exit_code == 0
    for expected in ("3 dead letters", "gpu-1", "input_failed: it kills", "and 1 older", "--most 3"):
        assert expected in result.output
    letters = listed(dead)
    assert [letter["request_id"] for letter in letters] == ["request-2", "request-1", "request-0"]
    assert {(letter["inputs"], letter["attempts"]) for letter in letters} == {(2, 3)}


def test_the_text_is_hidden_unless_asked_for(dead: Dead) -> None:
    """Length and digest tell texts apart; neither the list nor the JSON holds one by itself."""
    letter_id = str(listed(dead)[0]["id"])
    hidden = dead("show", letter_id)
    assert hidden.exit_code == 0
    assert "20 characters, SHA-256" in hidden.output
    outputs = [
        hidden.output,
        dead("list").output,
        dead("list", "--json").output,
        dead("show", letter_id, "--json").output,
    ]
    assert not any(text in output for text in TEXTS for output in outputs)
    shown = dead("show", letter_id, "--show-text").output
    assert all(text in shown for text in ("a secret of somebody", r"another one \x1b[31m"))
    assert "\x1b[31m" not in shown
    assert json.loads(dead("show", letter_id, "--show-text", "--json").output)["texts"] == list(TEXTS)


def test_purge_asks_and_deletes_what_is_named(dead: Dead) -> None:
    """A no deletes nothing; --yes does not ask; an id that is none is told, and the rest is deleted."""
    newest, middle, oldest = (str(letter["id"]) for letter in listed(dead))
    assert "nothing deleted" in dead("purge", newest, input="n\n").output
    assert len(listed(dead)) == 3
    assert dead("purge", newest, input="y\n").exit_code == 0
    assert [letter["id"] for letter in listed(dead)] == [middle, oldest]
    result = dead("purge", middle, "7-7", "--yes")
    assert (result.exit_code, [letter["id"] for letter in listed(dead)]) == (1, [oldest])
    assert "deleted: 1" in result.output
    assert dead("purge", "--all", "--yes").exit_code == 0
    assert "0 dead letters" in dead("list").output


def test_without_a_worker_requeue_says_that_nobody_answers(dead: Dead) -> None:
    """It does not wait for ever, the letter stays, and an id that is none is told."""
    letter_id = str(listed(dead)[0]["id"])
    result = dead("requeue", letter_id, "7-7", "--timeout-s", "0.2")
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        f"{letter_id}: no answer in time: does a worker live? See `redbatch queue`",
        "7-7: there is no such dead letter",
    ]
    assert len(listed(dead)) == 3


@pytest.mark.parametrize("command", ["requeue", "purge"])
@pytest.mark.parametrize("arguments", [[], ["1-1", "--all"]])
def test_which_ones_must_be_clear(dead: Dead, command: str, arguments: list[str]) -> None:
    """Some ids or --all, not both and not neither: exit code 2, and nothing is done."""
    assert dead(command, *arguments).exit_code == 2
    assert len(listed(dead)) == 3


def test_show_of_none_is_one_line(dead: Dead) -> None:
    """Exit code 1."""
    result = dead("show", "1-1")
    assert (result.exit_code, "no such dead letter" in result.output) == (1, True)


def test_a_redis_out_of_reach_is_one_line(dead: Dead) -> None:
    """Its password stays unsaid."""
    result = dead("list", "--redis-url", "redis://:secret@127.0.0.1:1/0")
    assert (result.exit_code, "secret" in result.output) == (1, False)
