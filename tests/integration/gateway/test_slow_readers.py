"""Clients that do not read their answers, or read them slowly: what they cost is bounded, in bytes and in time."""

from __future__ import annotations

import asyncio
import contextlib
import email.parser
import io
import json
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from api.http.head_refusal import LINGER_S
from tests.integration.gateway.conftest import NewKey
from tests.integration.gateway.gateway_cluster import (
    GatewayCluster,
    GatewayProcess,
    log_lines,
    null_vector,
    vector_bytes,
)
from tests.integration.gateway.job_client import JobClient
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.timeout(60)]

TEXTS = [f"secret {number}" for number in range(2_048)]
ANSWER_BYTES = 8_000_000
"""About the size of the answer to these texts: more than the kernel takes of an answer that is not read."""

RECEIVE_BYTES = 2**16
NPY_INPUTS = 20_000
PORTION_BYTES = 2_048 * 384 * 4


@dataclass
class Client:
    """A connection to a gateway; what it receives is read from a file, so that answers can follow one another."""

    connection: socket.socket
    received: io.BufferedReader

    def sendall(self, data: bytes) -> None:
        """Sends all data."""
        self.connection.sendall(data)


Connect = Callable[..., Client]


def post(body: object, key: str = "") -> bytes:
    """Returns a request to /embed, with an API key or none."""
    content, fields = json.dumps(body).encode(), b"X-Api-Key: %b\r\n" % key.encode() if key else b""
    head = b"POST /embed HTTP/1.1\r\nHost: x\r\n%bContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % (fields, len(content)) + content


LARGE, SMALL = post({"texts": TEXTS}), post({"text": "a"})


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Opens connections to a gateway whose kernel keeps little of what is not read; they are closed after the test."""
    with contextlib.ExitStack() as stack:

        def connect(gateway: GatewayProcess, address: str = "127.0.0.1") -> Client:
            connection = stack.enter_context(socket.socket())
            connection.bind((address, 0))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
            connection.settimeout(20)
            connection.connect(("127.0.0.1", gateway.port))
            return Client(connection, stack.enter_context(connection.makefile("rb")))

        yield connect


async def start(cluster: GatewayCluster, **settings: object) -> GatewayProcess:
    """Starts a gateway and a worker."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(**settings), cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker", timeout_s=20)
    return gateway


def unsent_bytes(gateway: GatewayProcess) -> float:
    """Returns the unsent bytes that a gateway holds."""
    return gateway.metric("redbatch_unsent_bytes")


def num_closed(gateway: GatewayProcess, reason: str) -> float:
    """Returns how many connections a gateway has closed for a reason."""
    return gateway.metric(f'redbatch_closed_connections_total{{reason="{reason}"}}')


async def request_unread(gateway: GatewayProcess, client: Client, request: bytes = LARGE) -> None:
    """Sends a request with a large answer, and waits until a part of that is unsent."""
    before = unsent_bytes(gateway)
    client.sendall(request)
    await wait_until(lambda: unsent_bytes(gateway) > before, "the answer is unsent", timeout_s=20)


def read_answer(client: Client, pause_s: float = 0.0) -> dict[str, Any]:
    """Reads one answer with a pause after each part, and returns its document."""
    assert client.received.readline().startswith(b"HTTP/1.1 200 ")
    headers = email.parser.BytesParser().parsebytes(b"".join(iter(client.received.readline, b"\r\n")))
    left, parts = int(headers["content-length"]), list[bytes]()
    while left:
        parts.append(client.received.read1(min(RECEIVE_BYTES, left)))
        assert parts[-1], "the answer was cut short"
        left -= len(parts[-1])
        time.sleep(pause_s)
    document: dict[str, Any] = json.loads(b"".join(parts))
    return document


def embedding_of(client: Client) -> bytes:
    """Reads the answer to SMALL, and returns its vector as raw float32."""
    return vector_bytes(read_answer(client)["embedding"])


def is_cut_off(client: Client) -> bool:
    """Whether the gateway has reset a connection, after what the kernel has received is read."""
    try:
        while client.received.read1(RECEIVE_BYTES):
            pass
    except ConnectionResetError:
        return True
    return False


@pytest.mark.parametrize("protocol", [b"HTTP/1.1", b"HTTP/1.0"])
async def test_a_client_that_reads_nothing_is_closed_in_time(
    cluster: GatewayCluster, connect: Connect, protocol: bytes
) -> None:
    """It is closed after send_timeout_s, logged once without its texts, and counted; its answer is freed.

    With HTTP/1.0, the connection is closing already, and would end only once its answer is sent.
    """
    gateway = await start(cluster, send_timeout_s=1)
    connection = connect(gateway)
    started = time.monotonic()
    connection.sendall(LARGE.replace(b"HTTP/1.1", protocol))
    await wait_until(lambda: num_closed(gateway, "send_timeout") == 1, "the connection is closed", timeout_s=20)
    assert time.monotonic() - started >= 0.5
    assert is_cut_off(connection)
    await wait_until(lambda: unsent_bytes(gateway) == 0, "its answer is freed")
    [line] = [each for each in log_lines(gateway.program) if each["msg"] == "connection closed"]
    assert (line["reason"], line["client"], line["level"]) == ("send_timeout", "127.0.0.1", "info")
    assert "secret" not in gateway.program.output


async def test_a_slow_but_steady_reader_gets_its_answer(cluster: GatewayCluster, connect: Connect) -> None:
    """A client that takes several times send_timeout_s for an answer gets all of it, as long as it reads steadily."""
    gateway = await start(cluster, send_timeout_s=1.5)
    connection = connect(gateway)
    connection.sendall(LARGE)
    started = time.monotonic()
    document = await asyncio.to_thread(read_answer, connection, 0.04)
    assert time.monotonic() - started >= 3 * 1.5
    assert [vector_bytes(each) for each in document["embeddings"]] == list(map(null_vector, TEXTS))
    assert num_closed(gateway, "send_timeout") == 0


async def test_a_pipelining_client_that_does_not_read_makes_nothing_computed(
    cluster: GatewayCluster, connect: Connect
) -> None:
    """Of three requests of a client that reads nothing, one is computed; the next begins once it has read that."""
    gateway = await start(cluster)
    pipelining, other = connect(gateway), connect(gateway)
    pipelining.sendall(LARGE * 3)
    await wait_until(lambda: unsent_bytes(gateway) > 0, "the first answer is unsent", timeout_s=20)
    for _ in range(20):
        other.sendall(SMALL)
        read_answer(other)
    assert gateway.metric("redbatch_request_inputs_total") == len(TEXTS) + 20
    assert unsent_bytes(gateway) <= 1.5 * ANSWER_BYTES
    read_answer(pipelining)
    await wait_until(lambda: gateway.metric("redbatch_request_inputs_total") == 2 * len(TEXTS) + 20, "the next begins")


async def test_pipelined_answers_arrive_whole_and_in_order(cluster: GatewayCluster, connect: Connect) -> None:
    """A client that pipelines and reads late gets all answers, in order, and the connection serves on."""
    gateway = await start(cluster)
    connection = connect(gateway)
    sending = asyncio.create_task(asyncio.to_thread(connection.sendall, (LARGE + SMALL) * 2))
    await wait_until(lambda: unsent_bytes(gateway) > 0, "the first answer is unsent", timeout_s=20)
    answers = [await asyncio.to_thread(read_answer, connection) for _ in range(4)]
    await sending
    assert [len(each.get("embeddings", [])) for each in answers] == [len(TEXTS), 0, len(TEXTS), 0]
    connection.sendall(SMALL)
    assert embedding_of(connection) == null_vector("a")


HALF_HEAD = b"GET /livez HTTP/1.1\r\nHost: x\r\na: " + b"x" * 60_000
PADDED = b'{"text": "a"}' + b" " * 200_000
POST_PADDED = b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
    len(PADDED),
    PADDED,
)


@pytest.mark.parametrize(
    ("behind", "rest"), [(HALF_HEAD, b""), (POST_PADDED[:100_000], POST_PADDED[100_000:])], ids=["head", "body"]
)
async def test_half_heads_of_others_cost_no_answer_that_is_unread(
    cluster: GatewayCluster, connect: Connect, behind: bytes, rest: bytes
) -> None:
    """Half a head behind it is dropped for those of other clients, and half a request is not. The answer comes."""
    gateway = await start(cluster, head_timeout_s=60)
    client = connect(gateway)
    await request_unread(gateway, client, LARGE + behind)
    for number in range(2, 47):
        connect(gateway, f"127.0.0.{number}").sendall(HALF_HEAD[:25_000])
    await wait_until(lambda: gateway.errors("too_many_heads") >= 1, "there is no room for more heads")
    document = await asyncio.to_thread(read_answer, client, 2 * LINGER_S * RECEIVE_BYTES / ANSWER_BYTES)
    assert [vector_bytes(each) for each in document["embeddings"]] == list(map(null_vector, TEXTS))
    if rest:
        client.sendall(rest)
        assert embedding_of(client) == null_vector("a")
    else:
        assert client.received.read() == b"", "the connection is closed, without an error"
    assert num_closed(gateway, "evicted") == 0


async def test_the_bound_of_all_connections_closes_the_one_that_has_stalled_longest(
    cluster: GatewayCluster, connect: Connect
) -> None:
    """Of three clients whose answers exceed the bound, that which reads nothing is closed, not the older slow one."""
    gateway = await start(cluster, max_unsent_bytes=int(2.5 * ANSWER_BYTES), send_timeout_s=8)
    slow, stalled, newest = (connect(gateway) for _ in range(3))
    await request_unread(gateway, slow)
    reading = asyncio.create_task(asyncio.to_thread(read_answer, slow, 0.05))
    await request_unread(gateway, stalled)
    await asyncio.sleep(1.5)  # the gateway looks meanwhile, and finds that the slow one has received something
    newest.sendall(LARGE)
    await wait_until(lambda: num_closed(gateway, "unsent_bytes") == 1, "a connection is closed")
    assert is_cut_off(stalled)
    assert len(read_answer(newest)["embeddings"]) == len(TEXTS)
    assert len((await reading)["embeddings"]) == len(TEXTS)
    assert num_closed(gateway, "unsent_bytes") == 1


@pytest.mark.leaves_anything
@pytest.mark.parametrize("auth", ["off", "on"])
async def test_a_client_that_reads_a_little_closes_only_its_own_connections(
    isolated_cluster: GatewayCluster, connect: Connect, new_key: NewKey, auth: str
) -> None:
    """Of another address, or with another tenant's key, one that has received nothing for longer loses nothing."""
    keys = [await new_key(), await new_key()] if auth == "on" else ["", ""]
    large = [post({"texts": TEXTS}, key) for key in keys]
    bound = int(3.5 * ANSWER_BYTES)
    gateway = await start(isolated_cluster, auth=auth, max_unsent_bytes=bound)
    honest, *greedy = (connect(gateway, address) for address in ("127.0.0.1", *["127.0.0.2"] * 3))
    if auth == "on":
        greedy = [connect(gateway) for _ in greedy]
    await request_unread(gateway, honest, large[0])
    for each in greedy[:2]:
        await request_unread(gateway, each, large[1])
    for each in greedy[:2]:
        each.received.read(RECEIVE_BYTES * 4)
    greedy[2].sendall(large[1])
    await wait_until(lambda: num_closed(gateway, "unsent_bytes") == 1, "a connection is closed")
    answer = await asyncio.to_thread(read_answer, honest)
    assert [vector_bytes(each) for each in answer["embeddings"]] == list(map(null_vector, TEXTS))
    assert num_closed(gateway, "unsent_bytes") == 1


async def test_an_answer_over_the_bound_of_a_connection_closes_it(cluster: GatewayCluster, connect: Connect) -> None:
    """A connection is closed at once if more of its answer than max_connection_unsent_bytes is in memory."""
    gateway = await start(cluster, max_connection_unsent_bytes=ANSWER_BYTES // 2)
    connection = connect(gateway)
    connection.sendall(LARGE)
    await wait_until(lambda: num_closed(gateway, "unsent_bytes") == 1, "the connection is closed", timeout_s=20)
    assert is_cut_off(connection)
    connection = connect(gateway)
    connection.sendall(SMALL)
    assert embedding_of(connection) == null_vector("a")


@pytest.mark.slow
async def test_a_download_that_is_not_read_holds_one_portion(cluster: GatewayCluster, connect: Connect) -> None:
    """A job's vectors are read from Redis as their client reads them; a client that reads nothing is closed in time."""
    gateway = await start(cluster, send_timeout_s=4)
    client = JobClient(gateway)
    job = client.job_of(client.post_lines([{"text": str(number)} for number in range(NPY_INPUTS)]))
    assert client.wait_until_ended(job)["status"] == "done"
    get = f"GET {job['result_url']} HTTP/1.1\r\nHost: x\r\nAccept: application/x-npy\r\n\r\n".encode()
    connection = connect(gateway)
    connection.sendall(get)
    await wait_until(lambda: unsent_bytes(gateway) > 0, "a part is unsent")
    assert unsent_bytes(gateway) <= PORTION_BYTES + 1_000
    await wait_until(lambda: num_closed(gateway, "send_timeout") == 1, "the connection is closed", timeout_s=20)
    await wait_until(lambda: unsent_bytes(gateway) == 0, "its answer is freed")
