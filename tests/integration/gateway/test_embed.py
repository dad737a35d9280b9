"""POST /embed over HTTP without faults: one Redis, a gateway, a null worker."""

from __future__ import annotations

import re
import secrets
import socket

import httpx
import pytest

from tests import plain_http
from tests.integration.gateway.gateway_cluster import (
    GatewayProcess,
    exchange_bytes,
    has_vectors,
    null_vector,
    vector_bytes,
)

pytestmark = pytest.mark.redis


def test_one_text_gives_one_vector(served: GatewayProcess) -> None:
    """The answer contains only the model's vector, bit for bit."""
    answer = served.embed({"text": "Hello, world"})
    assert (answer.status_code, list(answer.json())) == (200, ["embedding"])
    assert answer.headers["content-type"] == "application/json"
    assert vector_bytes(answer.json()["embedding"]) == null_vector("Hello, world")


@pytest.mark.parametrize("number", [1, 2, 32, 33, 64, 2_048])
def test_many_texts_give_vectors_in_order(served: GatewayProcess, number: int) -> None:
    """For any number of entries that a request is split into, each vector is in the place of its text."""
    texts = [f"{secrets.token_hex(4)} {i}" for i in range(number)]
    answer = served.embed({"texts": texts})
    assert list(answer.json()) == ["embeddings"]
    assert has_vectors(answer, texts)


def test_the_same_text_twice_gives_the_same_vector_twice(served: GatewayProcess) -> None:
    """If a text occurs twice, each place has its vector."""
    texts = ["same", "other", "same"]
    assert has_vectors(served.embed({"texts": texts}), texts)


@pytest.mark.parametrize("text", ["\0", "a\0b", "😀", "\u202e", " ", "é" * 100_000, "x" * 122_880, "\ufeff", '"\\\n'])
def test_any_character_may_be_in_a_text(served: GatewayProcess, text: str) -> None:
    """Any text in JSON, up to the maximum length, reaches the model unchanged."""
    assert vector_bytes(served.embed({"text": text}).json()["embedding"]) == null_vector(text)


def test_a_body_without_a_content_type_is_json(served: GatewayProcess) -> None:
    """A body is read as JSON without a content type, with a charset, and with any +json type."""
    for headers in ({}, {"content-type": "application/json; charset=utf-8"}, {"content-type": "application/x+json"}):
        answer = plain_http.post(f"{served.url}/embed", content=b'{"text": "a"}', headers=headers)
        assert answer.status_code == 200


def test_expect_100_continue_is_answered_before_the_body(served: GatewayProcess) -> None:
    """`Expect: 100-continue`, which curl sends with a long body, gets its 100 before the body is sent."""
    body = b'{"text": "a"}'
    head = b"POST /embed HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(head % len(body))
        assert connection.recv(1_000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert connection.recv(1_000).startswith(b"HTTP/1.1 200 ")


def test_pipelined_requests_are_answered_in_order(served: GatewayProcess) -> None:
    """Three requests that are sent at once on one connection get their answers in order."""
    bodies = [b'{"text": "%d"}' % i for i in range(3)]
    head = b"POST /embed HTTP/1.1\r\nHost: x\r\nX-Request-Id: %d\r\nContent-Length: %d\r\n\r\n"
    sent = b"".join(head % (i, len(body)) + body for i, body in enumerate(bodies))
    answers = exchange_bytes(served.port, sent.replace(b"Id: 2\r\n", b"Id: 2\r\nConnection: close\r\n"))
    assert re.findall(rb"x-request-id: (\d)", answers) == [b"0", b"1", b"2"]
    assert answers.count(b"HTTP/1.1 200 ") == len(bodies)


def test_a_chunked_body_is_accepted(served: GatewayProcess) -> None:
    """A body with chunked transfer encoding, whose length is not announced, is accepted."""
    sent = b"POST /embed HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = exchange_bytes(served.port, sent + b'8\r\n{"text":\r\n4\r\n"a"}\r\n0\r\n\r\n')
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_the_headers_contain_the_timing(served: GatewayProcess) -> None:
    """The headers contain the milliseconds in the queue and in the model, and the size of the batch."""
    answer = served.embed({"texts": ["a", "b", "c"]})
    assert 0 <= float(answer.headers["x-queue-time"]) < 10_000
    assert 0 <= float(answer.headers["x-inference-time"]) < 10_000
    assert int(answer.headers["x-batch-size"]) >= 3


@pytest.mark.parametrize("request_id", ["a", "A-b_9", "x" * 64, "0af7651916cd43dd8448eb211c80319c"])
def test_a_valid_request_id_is_returned(served: GatewayProcess, request_id: str) -> None:
    """A valid X-Request-Id is returned with an answer and with an error."""
    assert served.embed({"text": "a"}, x_request_id=request_id).headers["x-request-id"] == request_id
    refused = served.embed({}, x_request_id=request_id)
    assert refused.json()["error"]["request_id"] == refused.headers["x-request-id"] == request_id


@pytest.mark.parametrize("request_id", ["", "x" * 65, "a b", "a/b", "a:b", "{a}", "a,b"])
def test_a_malformed_request_id_is_replaced(served: GatewayProcess, request_id: str) -> None:
    """An id that could break a log line or name a key of Redis is replaced by a random one."""
    ids = {served.embed({"text": "a"}, x_request_id=request_id).headers["x-request-id"] for _ in range(2)}
    assert len(ids) == 2
    assert all(len(each) == 32 and int(each, 16) for each in ids)


def test_the_timeout_in_the_body_precedes_the_header(served: GatewayProcess) -> None:
    """The timeout in the body takes precedence over the header; in both, 300,000 ms, the maximum, is accepted."""
    assert served.embed({"text": "a", "timeout_ms": 300_000}, x_timeout_ms="1").status_code == 200
    assert served.embed({"text": "a"}, x_timeout_ms="300000").status_code == 200


def test_a_keep_alive_connection_serves_many_requests(served: GatewayProcess) -> None:
    """Valid and invalid requests use the same connection: an error does not close it."""
    with httpx.Client(base_url=served.url, verify=plain_http.NO_TLS) as client:
        client.post("/embed", json={"text": "a"})
        (connection,) = client._transport._pool.connections  # type: ignore[attr-defined]
        statuses = [client.post("/embed", json=body).status_code for body in ({"text": "a"}, {}, {"text": "b"}) * 5]
        assert client._transport._pool.connections == [connection]  # type: ignore[attr-defined]
    assert statuses == [200, 400, 200] * 5
