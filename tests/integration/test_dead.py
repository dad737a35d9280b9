"""`redbatch dead`: what it shows and hides, and how it handles unknown ids."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from typer.testing import CliRunner

from redbatch.commands import app
from shared import consumer
from shared.codec import encode_body
from shared.messages import EMBED, Body, NewEntry
from shared.producer import Submission
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests.integration.queue.actors import BUDGET_MS, Gateway, Worker
from tests.users import as_user

pytestmark = [pytest.mark.redis, pytest.mark.leaves_dead_letters]

TEXTS = ("a secret of somebody", "another one \x1b[31m")
NO_ANSWER = "no answer in time: check with `redbatch queue` that a worker is alive"
Dead = Callable[..., Any]


async def give_up(redis_url: str, queue_name: str, texts: Sequence[str], number: int) -> None:
    """Submits requests with these texts, claims them, and gives them up after three attempts."""
    queue = QueueConnections(QueueSettings(redis_url=redis_url, redis_shards=""), queue_name, "test")
    try:
        worker = Worker(queue.connection("worker"), queue.keys, "gpu-1")
        await consumer.join(worker.connection, queue.keys)
        new_entries = (NewEntry(0, len(texts), 10, encode_body(Body(EMBED, tuple(texts)))),)
        gateway = Gateway(queue.connection("submit"), queue.keys, f"gateway-{uuid.uuid4()}")
        await gateway.add(*(Submission(f"request-{i}", new_entries, BUDGET_MS) for i in range(number)))
        await worker.give_up([each._replace(attempts=3) for each in await worker.claim()], max_dead_letters=100)
        await worker.leave()
    finally:
        await queue.close()


@pytest.fixture
def dead(redis_url: str, queue_name: str, monkeypatch: pytest.MonkeyPatch) -> Dead:
    """Runs `redbatch dead` with arguments, on the queue of this test, which has three dead letters."""
    monkeypatch.setenv("REDBATCH_REDIS_URL", as_user(redis_url, "admin"))
    monkeypatch.setenv("REDBATCH_QUEUE", queue_name)
    monkeypatch.setenv("COLUMNS", "160")
    asyncio.run(give_up(redis_url, queue_name, TEXTS, 3))
    return lambda *arguments, **options: CliRunner().invoke(app, ["dead", *arguments], **options)


def list_letters(dead: Dead) -> list[dict[str, object]]:
    """Returns the dead letters that `list --json` prints, newest first."""
    return [json.loads(line) for line in dead("list", "--json").output.splitlines()]


def test_the_list_is_newest_first_and_says_why(dead: Dead) -> None:
    """The list shows the newest letters with their errors, the total, and how to show the others."""
    result = dead("list", "--most", "2")
    assert result.exit_code == 0
    for expected in ("3 dead letters", "gpu-1", "input_failed: it kills", "and 1 older", "--most 3"):
        assert expected in result.output
    letters = list_letters(dead)
    assert [letter["request_id"] for letter in letters] == ["request-2", "request-1", "request-0"]
    assert {(letter["inputs"], letter["attempts"]) for letter in letters} == {(2, 3)}


def test_texts_are_hidden_by_default(dead: Dead) -> None:
    """Without --show-text, no output contains a text: length and digest replace it."""
    letter_id = str(list_letters(dead)[0]["id"])
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
    with_text = dead("show", letter_id, "--show-text").output
    assert all(text in with_text for text in ("a secret of somebody", r"another one \u001b[31m"))
    assert "\x1b[31m" not in with_text
    assert json.loads(dead("show", letter_id, "--show-text", "--json").output)["texts"] == list(TEXTS)


def test_purge_confirms_and_deletes_the_given_ids(dead: Dead) -> None:
    """The answer no deletes nothing; --yes skips the question; an unknown id is an error, the others are deleted."""
    newest, middle, oldest = (str(letter["id"]) for letter in list_letters(dead))
    assert "nothing deleted" in dead("purge", newest, input="n\n").output
    assert len(list_letters(dead)) == 3
    assert dead("purge", newest, input="y\n").exit_code == 0
    assert [letter["id"] for letter in list_letters(dead)] == [middle, oldest]
    result = dead("purge", middle, "7-7", "--yes")
    assert (result.exit_code, [letter["id"] for letter in list_letters(dead)]) == (1, [oldest])
    assert "deleted: 1" in result.output
    assert dead("purge", "--all", "--yes").exit_code == 0
    assert "0 dead letters" in dead("list").output


def test_requeue_without_a_worker_times_out(dead: Dead) -> None:
    """Without a worker, `requeue` ends after its timeout, the letter stays, and an unknown id is reported."""
    letter_id = str(list_letters(dead)[0]["id"])
    result = dead("requeue", letter_id, "7-7", "--timeout-s", "0.2")
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        f"{letter_id}: {NO_ANSWER}",
        "7-7: there is no such dead letter",
    ]
    as_json = dead("requeue", letter_id, "7-7", "--timeout-s", "0.2", "--json")
    assert as_json.exit_code == 1
    assert [json.loads(line) for line in as_json.stdout.splitlines()] == [
        {"id": letter_id, "answered": False, "error": NO_ANSWER},
        {"id": "7-7", "answered": False, "error": "there is no such dead letter"},
    ]
    assert len(list_letters(dead)) == 3


@pytest.mark.parametrize("command", ["requeue", "purge"])
@pytest.mark.parametrize("arguments", [[], ["1-1", "--all"]])
def test_ids_and_all_exclude_each_other(dead: Dead, command: str, arguments: list[str]) -> None:
    """Both ids and --all, or neither, end with exit code 2 and change nothing."""
    assert dead(command, *arguments).exit_code == 2
    assert len(list_letters(dead)) == 3


def test_show_of_an_unknown_id_fails(dead: Dead) -> None:
    """`show` of an unknown id ends with exit code 1 and an error line."""
    result = dead("show", "1-1")
    assert (result.exit_code, "no such dead letter" in result.output) == (1, True)


def test_an_unreachable_redis_fails(dead: Dead) -> None:
    """If Redis is unreachable, the exit code is 1 and the output does not contain its password."""
    result = dead("list", "--redis-url", "redis://:secret@127.0.0.1:1/0")
    assert (result.exit_code, "secret" in result.output) == (1, False)
