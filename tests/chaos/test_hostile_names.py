"""Text from Redis and from clients, on the operator's terminal (F21): escape sequences have no effect there."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import redis

from shared import consumer, gpu_leases
from shared.api_keys import digest_of
from shared.codec import encode_body, encode_reply
from shared.keys import API_KEYS, Keys, PoolKeys
from shared.messages import EMBED, FAILING, READY, Body, Failure, Heartbeat
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests import plain_http
from tests.chaos.scenario import Figures
from tests.servers import Server
from tests.terminal import HOSTILE, foreign_controls, run_in_terminal, running_in_terminal
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(120)]

KEYS, OTHER = Keys("hostile"), Keys("other")
TTL_MS = 600_000
LETTER_ID, JOB_ID, KEY_ID, SECRET = "5-1", "a" * 32, "b" * 12, "secret"
NUMBERS = ("lane", "n", "done", "failed", "per_entry", "created_ms", "expires_ms", "ttl_ms")


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    """The URL of a server in which every text that its writers choose is hostile."""
    with Server(users=False) as server:
        with redis.Redis.from_url(server.url, protocol=2) as client:
            write_records(client)
        asyncio.run(write_workers(server.url))
        yield server.url


def write_records(client: redis.Redis) -> None:
    """Writes two API keys, a dead letter and two jobs."""
    record = {"key_id": HOSTILE, "digest": "0" * 64, "scopes": ["embed"], "tenant": HOSTILE, "name": HOSTILE}
    client.hset(API_KEYS, "id", json.dumps({**record, "created_ms": 1}))
    record |= {"key_id": KEY_ID, "digest": digest_of(SECRET)}
    client.hset(API_KEYS, KEY_ID, json.dumps({**record, "created_ms": 1}))
    texts = ("lane", "entry", "id", "worker", "error")
    body = encode_body(Body(EMBED, (HOSTILE,)))
    client.xadd(KEYS.dead, {**dict.fromkeys(texts, HOSTILE), "n": "1", "attempts": "3", "body": body}, id=LETTER_ID)
    for job_id in (JOB_ID, HOSTILE):
        names = dict.fromkeys(("owner", "revisions", "op"), HOSTILE)
        fields: dict[Any, Any] = {"status": "done", **names, **dict.fromkeys(NUMBERS, "1")}
        client.hset(KEYS.job(job_id), mapping=fields)
        client.zadd(KEYS.all_jobs, {job_id: 1})
        client.rpush(f"{KEYS.job(job_id)}:failed", 0)
        client.hset(f"{KEYS.job(job_id)}:out", "0", encode_reply(Failure(job_id, 0, 1, HOSTILE, HOSTILE)))


async def write_workers(url: str) -> None:
    """Writes the heartbeats of two workers, of which one has a GPU lease, and announces two queues."""
    for keys in (KEYS, OTHER):
        queue = QueueConnections(QueueSettings(redis_url=url), keys.queue, "test")
        try:
            connection = queue.connection("test")
            await consumer.announce(connection, keys)
            for state in (READY, FAILING):
                beat = Heartbeat(
                    *(f"{state}{HOSTILE}", HOSTILE, 1, HOSTILE, HOSTILE, 4, state, 1.0, 0, 0, 1),
                    gpu_pool=HOSTILE,
                    gpu_slots=(HOSTILE,),
                    failing=HOSTILE,
                    revision=HOSTILE,
                )
                await consumer.heartbeat(connection, keys, beat, TTL_MS)
            await gpu_leases.acquire(connection, PoolKeys(HOSTILE), [HOSTILE], f"{READY}{HOSTILE}", TTL_MS)
        finally:
            await queue.close()


COMMANDS = (
    "keys list",
    f"queue --queue {KEYS.queue}",
    f"dead list --queue {KEYS.queue}",
    f"dead show {LETTER_ID} --queue {KEYS.queue}",
    f"dead show {LETTER_ID} --queue {KEYS.queue} --show-text",
    f"jobs list --queue {KEYS.queue}",
    f"jobs show {KEYS.queue}.{JOB_ID}",
    "leases",
)
WIDTHS = ("200", "40")


async def test_names_with_control_characters(redis_url: str, rows: list[Figures]) -> None:
    """F21: every name, error and text of others is shown with its control characters escaped in tables.

    Also on a narrow terminal.
    """
    environment = {"REDBATCH_REDIS_URL": redis_url}

    def show(command: str) -> str:
        runs = [run_in_terminal(command.split(), environment | {"COLUMNS": width}) for width in WIDTHS]
        return "".join(runs)

    outputs = dict(
        zip(COMMANDS, await asyncio.gather(*(asyncio.to_thread(show, each) for each in COMMANDS)), strict=True)
    )
    judge("F21 names in tables of commands", outputs, rows)


async def test_names_in_logs(redis_url: str, rows: list[Figures]) -> None:
    """F21: so are the names of other workers' models in the log of a worker, and tenants in that of a gateway."""
    outputs = {"worker": await log_of_worker(redis_url), "gateway": await log_of_gateway(redis_url)}
    judge("F21 names in logs", outputs, rows)


def judge(fault: str, outputs: Mapping[str, str], rows: list[Figures]) -> None:
    """Records figures. Raises AssertionError: an output has control characters, or no hostile text at all."""
    reached = {name: len(found) for name, output in outputs.items() if (found := foreign_controls(output))}
    escaped = [name for name, output in outputs.items() if re.search(r"u001b|\\x1b", output)]  # the other: in a list
    rows.append(
        {"fault": fault, "outputs": len(outputs), "escaped": len(escaped), "with_control_characters": len(reached)}
    )
    assert reached == {}, "kinds of control characters that reached the terminal"
    assert set(outputs) - set(escaped) == set(), "these show no hostile text, and prove nothing"


async def log_of_worker(redis_url: str) -> str:
    """Returns the log of a worker beside workers of other models, whose names are hostile."""
    options = ("--model", "null", "--admin-port", "0", "--queue", KEYS.queue, "--drain-grace-s", "0")
    with running_in_terminal("worker", *options, REDBATCH_REDIS_URL=redis_url) as terminal:
        await wait_until(
            lambda: "models=" in terminal.output, lambda: f"the models differ:\n{terminal.output}", timeout_s=30
        )
        await terminal.stop()
        return terminal.output


async def log_of_gateway(redis_url: str) -> str:
    """Returns the log of a gateway that has refused a request of a tenant with a hostile name."""
    options = ("--port", "0", "--admin-port", "0", "--queue", KEYS.queue, "--auth", "on", "--drain-delay-s", "0")
    with running_in_terminal("gateway", *options, REDBATCH_REDIS_URL=redis_url) as terminal:
        await wait_until(
            lambda: "gateway starts" in terminal.output, lambda: f"it starts:\n{terminal.output}", timeout_s=30
        )
        port = re.findall(r"\bport\W+(\d+)", terminal.output)[0]
        headers = {"x-api-key": f"{KEY_ID}.{SECRET}"}
        answer = plain_http.post(f"http://127.0.0.1:{port}/embed", json={"texts": []}, headers=headers)
        assert answer.status_code == 400, answer.text
        await terminal.stop()
        return terminal.output


@pytest.mark.parametrize(
    "command",
    [
        "keys list --json",
        "queue --json",
        f"dead list --json --queue {KEYS.queue}",
        f"dead show {LETTER_ID} --queue {KEYS.queue} --show-text --json",
        f"jobs list --json --queue {KEYS.queue}",
        f"jobs show {KEYS.queue}.{JOB_ID} --json",
        "leases --json",
    ],
)
def test_json_is_valid_and_has_the_text(redis_url: str, command: str) -> None:
    """In JSON, which a terminal may show too, control characters are escaped, and its reader gets them back."""
    output = run_in_terminal(command.split(), {"REDBATCH_REDIS_URL": redis_url})
    assert foreign_controls(output) == set(), output
    values = [json.loads(line) for line in output.splitlines()]
    assert values
    assert any(HOSTILE in text for text in texts_in(values))


def texts_in(value: object) -> Iterator[str]:
    """Yields all texts in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts_in(each)


def test_several_queues_and_unknown_ids(redis_url: str) -> None:
    """The table of queues, and error lines that quote an argument, show none either."""
    assert foreign_controls(run_in_terminal(["queue"], {"REDBATCH_REDIS_URL": redis_url})) == set()
    argument = HOSTILE.replace("\0", "")
    for command in (("dead", "show", argument), ("keys", "revoke", argument), ("jobs", "show", argument)):
        output = run_in_terminal([*command], {"REDBATCH_REDIS_URL": redis_url})
        assert foreign_controls(output) == set(), output
        assert "\\u001b[31m" in output


class Hostile(BaseHTTPRequestHandler):
    """A gateway whose errors contain escape sequences."""

    def do_POST(self) -> None:
        """Answers 400."""
        body = json.dumps({"error": {"code": HOSTILE, "message": HOSTILE}}).encode()
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.send_response(400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST  # noqa: N815 - the name is http.server's

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class'
        """Writes nothing."""


@pytest.fixture
def hostile_url() -> Iterator[str]:
    """The URL of such a gateway."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_errors_of_a_server_in_bench_and_embed(hostile_url: str, tmp_path: Path) -> None:
    """What a server answers reaches the terminal of its client without control characters."""
    texts = tmp_path / "texts.txt"
    texts.write_text("a\nb\n")
    out = str(tmp_path / "out.npy")
    for command in (
        ("bench", hostile_url, "--requests", "3", "--warmup", "0s"),
        ("embed", str(texts), "--url", hostile_url, "--out", out),
    ):
        output = run_in_terminal([*command], {})
        assert "forged" in output, output
        assert foreign_controls(output) == set(), output
