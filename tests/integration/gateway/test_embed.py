"""POST /embed over HTTP, where all is well: one Redis, a gateway, a null worker."""

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
    """The vector is the model's, to the last bit, and nothing stands beside it."""
    answer = served.embed({"text": "Hello, world"})
    assert (answer.status_code, list(answer.json())) == (200, ["embedding"])
    assert answer.headers["content-type"] == "application/json"
    assert vector_bytes(answer.json()["embedding"]) == null_vector("Hello, world")


@pytest.mark.parametrize("number", [1, 2, 32, 33, 64, 2_048])
def test_many_texts_give_their_vectors_in_order(served: GatewayProcess, number: int) -> None:
    """However many entries a request becomes, each vector is at the place of its text."""
    texts = [f"{secrets.token_hex(4)} {i}" for i in range(number)]
    answer = served.embed({"texts": texts})
    assert list(answer.json()) == ["embeddings"]
    assert has_vectors(answer, texts)


def test_the_same_text_twice_gives_the_same_vector_twice(served: GatewayProcess) -> None:
    """Texts are not keys: each place has its own vector."""
    texts = ["same", "other", "same"]
    assert has_vectors(served.embed({"texts": texts}), texts)


@pytest.mark.parametrize("text", ["\0", "a\0b", "😀", "\u202e", " ", "é" * 100_000, "x" * 122_880, "\ufeff", '"\\\n'])
def test_any_character_is_a_text(served: GatewayProcess, text: str) -> None:
    """Up to the limit, whatever JSON can carry comes to the model as it is."""
    assert vector_bytes(served.embed({"text": text}).json()["embedding"]) == null_vector(text)


def test_a_body_without_a_content_type_is_taken_for_json(served: GatewayProcess) -> None:
    """As with curl --json, or with nothing said; a charset may stand there too."""
    for headers in ({}, {"content-type": "application/json; charset=utf-8"}, {"content-type": "application/x+json"}):
        answer = plain_http.post(f"{served.url}/embed", content=b'{"text": "a"}', headers=headers)
        assert answer.status_code == 200


def test_a_client_that_asks_first_whether_to_send_is_told_to(served: GatewayProcess) -> None:
    """`Expect: 100-continue`, as curl sends it with a long body: the word must not wait for the answer."""
    body = b'{"text": "a"}'
    head = b"POST /embed HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(head % len(body))
        assert connection.recv(1_000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert connection.recv(1_000).startswith(b"HTTP/1.1 200 ")


def test_requests_that_do_not_wait_for_answers_get_them_in_order(served: GatewayProcess) -> None:
    """Three sent at once on one connection (pipelined)."""
    bodies = [b'{"text": "%d"}' % i for i in range(3)]
    head = b"POST /embed HTTP/1.1\r\nHost: x\r\nX-Request-Id: %d\r\nContent-Length: %d\r\n\r\n"
    sent = b"".join(head % (i, len(body)) + body for i, body in enumerate(bodies))
    answers = exchange_bytes(served.port, sent.replace(b"Id: 2\r\n", b"Id: 2\r\nConnection: close\r\n"))
    assert re.findall(rb"x-request-id: (\d)", answers) == [b"0", b"1", b"2"]
    assert answers.count(b"HTTP/1.1 200 ") == len(bodies)


def test_a_chunked_body_is_a_body(served: GatewayProcess) -> None:
    """A client need not know the length of what it sends."""
    sent = b"POST /embed HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = exchange_bytes(served.port, sent + b'8\r\n{"text":\r\n4\r\n"a"}\r\n0\r\n\r\n')
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_the_headers_tell_where_the_time_went(served: GatewayProcess) -> None:
    """Milliseconds in the queue and in the model, and the inputs of the batch."""
    answer = served.embed({"texts": ["a", "b", "c"]})
    assert 0 <= float(answer.headers["x-queue-time"]) < 5_000
    assert 0 <= float(answer.headers["x-inference-time"]) < 5_000
    assert int(answer.headers["x-batch-size"]) >= 3


@pytest.mark.parametrize("given", ["a", "A-b_9", "x" * 64, "0af7651916cd43dd8448eb211c80319c"])
def test_a_well_formed_request_id_comes_back(served: GatewayProcess, given: str) -> None:
    """With an answer and with an error."""
    assert served.embed({"text": "a"}, x_request_id=given).headers["x-request-id"] == given
    refused = served.embed({}, x_request_id=given)
    assert refused.json()["error"]["request_id"] == refused.headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "x" * 65, "a b", "a/b", "a:b", "{a}", "a,b"])
def test_a_malformed_request_id_is_replaced(served: GatewayProcess, given: str) -> None:
    """What could break a log line or name a key of Redis is not repeated."""
    ids = {served.embed({"text": "a"}, x_request_id=given).headers["x-request-id"] for _ in range(2)}
    assert len(ids) == 2
    assert all(len(each) == 32 and int(each, 16) for each in ids)


def test_the_body_goes_before_the_header_in_the_timeout(served: GatewayProcess) -> None:
    """Both are read; the longest that a client may ask for is taken."""
    assert served.embed({"text": "a", "timeout_ms": 300_000}, x_timeout_ms="1").status_code == 200
    assert served.embed({"text": "a"}, x_timeout_ms="300000").status_code == 200


def test_a_keep_alive_connection_serves_many_requests(served: GatewayProcess) -> None:
    """Good and bad in turn: an error does not cost the connection."""
    with httpx.Client(base_url=served.url, verify=plain_http.NO_TLS) as client:
        client.post("/embed", json={"text": "a"})
        (connection,) = client._transport._pool.connections  # type: ignore[attr-defined]
        statuses = [client.post("/embed", json=body).status_code for body in ({"text": "a"}, {}, {"text": "b"}) * 5]
        assert client._transport._pool.connections == [connection]  # type: ignore[attr-defined]
    assert statuses == [200, 400, 200] * 5
