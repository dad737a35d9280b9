"""The logs of `redbatch gateway` and `redbatch worker` on a terminal, and elsewhere."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator

import httpx
import pytest

from tests import plain_http
from tests.terminal import Terminal, running_in_terminal
from tests.users import as_user
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.timeout(60)]

LINE = re.compile(r"\d\d:\d\d:\d\d (info   |warning) \S")
COMMANDS = {"gateway": ("--port", "0"), "worker": ("--model", "null")}
MESSAGES = {
    "gateway": ["gateway starts", "gateway drains", "gateway stopped"],
    "worker": ["worker starts", "engine ready", "worker drains", "worker drained"],
}


def answers(port: int) -> bool:
    """Whether a port is served."""
    try:
        return plain_http.get(f"http://127.0.0.1:{port}/livez").status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture(params=COMMANDS)
def command(request: pytest.FixtureRequest) -> str:
    """The command."""
    return str(request.param)


async def test_a_process_without_redis_repeats_what_to_do(command: str) -> None:
    """With its address and the time that it has waited: the lines that count refusals say neither."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        options = ("--redis-url", f"redis://{address}/0", "--admin-port", "0", *COMMANDS[command])
        with running_in_terminal(command, *options) as running:
            line = "Redis has not answered since the start waited_s="
            await wait_until(lambda: line in running.output, lambda: running.output, timeout_s=30)
            await wait_until(lambda: "\n" in running.output.partition(line)[2], "the line is complete")
            rest = running.output.partition(line)[2].splitlines()[0]
            assert re.fullmatch(rf"\d+ advice=start the Redis, or correct --redis-url \(.*redis={address}", rest)


@pytest.fixture(params=[{}, {"REDBATCH_LOG_FORMAT": "json"}], ids=["auto", "json"])
def terminal(
    request: pytest.FixtureRequest, command: str, redis_url: str, queue_name: str
) -> Iterator[tuple[Terminal, bool]]:
    """The command on a terminal, and whether its lines are to be JSON."""
    options = ("--admin-port", "0", "--queue", queue_name, "--drain-delay-s", "0")[: 6 if command == "gateway" else 4]
    url = as_user(redis_url, command)
    with running_in_terminal(command, "--redis-url", url, *COMMANDS[command], *options, **request.param) as terminal:
        yield terminal, bool(request.param)


async def test_lines_on_a_terminal_are_for_people_unless_set(
    command: str, terminal: tuple[Terminal, bool], queue_name: str
) -> None:
    """Each message is there once, in Redbatch's words: nothing of uvicorn, nothing twice."""
    running, is_json = terminal
    ready = MESSAGES[command][-3]

    def is_ready() -> bool:  # once the line is complete
        return "\n" in running.output.partition(ready)[2]

    await wait_until(is_ready, lambda: f"it is ready:\n{running.output}")
    port = re.search(r'admin_port"?[=:](\d+)' if command == "worker" else r'\bport"?[=:](\d+)', running.output)
    assert port is not None
    await wait_until(lambda: answers(int(port[1])), "it serves")
    await running.stop()
    lines = running.output.splitlines()
    if is_json:
        messages = [json.loads(line)["msg"] for line in lines]
    else:
        assert [line for line in lines if not LINE.match(line)] == []
        messages = [line[17:] for line in lines]
    assert [sum(each.startswith(message) for each in messages) for message in MESSAGES[command]] == [1] * len(
        MESSAGES[command]
    )
    assert len(lines) == len(set(lines))
    assert not re.search("uvicorn|server process|application", running.output, re.IGNORECASE)
