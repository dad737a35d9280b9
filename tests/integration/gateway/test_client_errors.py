"""POST /embed over HTTP with faults of the client: each is answered, with the schema of all errors."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import socket

import httpx
import pytest

from api.routes import allowed_methods
from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, error_of, exchange_bytes

pytestmark = pytest.mark.redis

HEAD = b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
MAX_BODY_BYTES = 2_000_000


def post(served: GatewayProcess, content: bytes, kind: str = "application/json") -> httpx.Response:
    """Posts bytes to /embed."""
    return plain_http.post(f"{served.url}/embed", content=content, headers={"content-type": kind})


def raw_error(answer: bytes) -> tuple[int, str]:
    """Returns the status and the code of an error read from a raw socket; it must close the connection."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"\r\nconnection: close" in head.lower()
    return int(head.split()[1]), json.loads(body)["error"]["code"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"NaN",
        b'{"text": NaN}',
        b'{"text": Infinity}',
        b'{"text": "\\ud800"}',
        b'{"texts": ["fine", "\\udfff"]}',
        b'{"text": "\xff\xfe"}',
        b'{"text": "a\x00b"}',
        b"\0",
        b"[" * 200_000,
        b'{"text": ' + b'{"a": ' * 50_000 + b"1" + b"}" * 50_000 + b"}",
        b"{}",
        b'{"text": null, "texts": null}',
        b'{"text": "a", "texts": ["b"]}',
        b'{"text": ""}',
        b'{"texts": []}',
        b'{"texts": ["a", ""]}',
        b'{"texts": [["a"]]}',
        b'{"texts": "a"}',
        b'{"texts": [1]}',
        b'{"text": 1}',
        b'{"text": true}',
        b'{"text": "a", "timeout_ms": 0}',
        b'{"text": "a", "timeout_ms": 300001}',
        b'{"text": "a", "timeout_ms": "5"}',
        b'{"text": "a", "timeout_ms": 1e3}',
        b'{"text": "a", "timeout_ms": ' + b"9" * 10_000 + b"}",
    ],
)
def test_an_invalid_body_is_a_400(served: GatewayProcess, content: bytes) -> None:
    """A body that is malformed, empty, of a wrong type, or without input gets a 400."""
    answer = post(served, content)
    assert (answer.status_code, error_of(answer)["code"]) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        *((path, "application/json") for path in ("/embed", "/v1/embeddings", "/similarity", "/predict", "/jobs")),
        ("/jobs", "application/x-ndjson"),
    ],
)
def test_a_compressed_body_is_a_415(served: GatewayProcess, path: str, media_type: str) -> None:
    """It would be taken for malformed JSON."""
    headers = {"content-type": media_type, "content-encoding": "gzip"}
    answer = plain_http.post(f"{served.url}{path}", content=gzip.compress(b'{"text": "a"}'), headers=headers)
    assert answer.status_code == 415
    assert "Content-Encoding: send the body without compression." in answer.text


@pytest.mark.parametrize("path", ["/embed", "/batch_embed", "/predict", "/v1/predict"])
def test_an_option_in_the_query_is_a_400_that_says_where_it_belongs(served: GatewayProcess, path: str) -> None:
    """Otherwise it would be ignored in silence; the routes of other APIs ignore it, as their clients expect."""
    body: dict[str, object] = {"input": 1} if path.endswith("predict") else {"texts": ["a"]}
    answer = plain_http.post(f"{served.url}{path}?dimensions=64", json=body)
    assert (answer.status_code, error_of(answer)["code"]) == (400, "invalid_request")
    assert error_of(answer)["message"] == "dimensions: send options in the body, not in the query."


def test_other_apis_ignore_a_query(served: GatewayProcess) -> None:
    """The dialect of the body decides on /embed, which takes Redbatch's and TEI's."""
    assert plain_http.post(f"{served.url}/embed?dimensions=64", json={"inputs": "a"}).status_code == 200
    assert (
        plain_http.post(f"{served.url}/v1/embeddings?api-version=1", json={"input": "a", "model": "null"}).status_code
        == 200
    )


@pytest.mark.parametrize("value", ["", "0", "-5", "300001", "1.5", "ten", "1" * 5_000, "000000000123456789"])
def test_a_bad_timeout_header_is_a_400(served: GatewayProcess, value: str) -> None:
    """X-Timeout-Ms must be a whole number from 1 to 300,000."""
    answer = served.embed({"text": "a"}, x_timeout_ms=value)
    assert (answer.status_code, error_of(answer)["code"]) == (400, "invalid_request")


def test_a_body_over_the_limit_is_a_413(served: GatewayProcess) -> None:
    """A body at the limit is accepted; with one byte more the answer comes although the client is still sending."""
    assert post(served, b" " * (MAX_BODY_BYTES - 13) + b'{"text": "a"}').status_code == 200
    answer = post(served, b" " * (MAX_BODY_BYTES - 12) + b'{"text": "a"}')
    assert (answer.status_code, error_of(answer)["code"]) == (413, "too_large")


def test_an_announced_body_over_the_limit_is_refused_at_once(served: GatewayProcess) -> None:
    """If the announced length exceeds the limit, the answer comes before the body, and the connection is closed."""
    assert raw_error(exchange_bytes(served.port, HEAD + b"Content-Length: 2000001\r\n\r\n")) == (413, "too_large")


def test_the_limit_holds_for_a_chunked_body(served: GatewayProcess) -> None:
    """A chunked body, whose length is not announced, is refused when it exceeds the limit, before its end."""
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    sent = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * (MAX_BODY_BYTES // 65_536 + 1)
    assert raw_error(exchange_bytes(served.port, sent)) == (413, "too_large")


async def test_an_incomplete_body_is_a_408(cluster: GatewayCluster, fake_heartbeat: None) -> None:
    """If the rest of a body does not arrive in time, the client gets a 408 and the connection is closed."""
    gateway = await cluster.start_gateway(body_timeout_s=0.3)
    sent = HEAD + b'Content-Length: 100\r\n\r\n{"text": "a'
    answer = await asyncio.to_thread(exchange_bytes, gateway.port, sent)
    assert raw_error(answer) == (408, "request_timeout")
    assert b"connection: close" in answer.lower()


def test_a_client_that_sends_a_far_too_large_body_gets_the_answer(served: GatewayProcess) -> None:
    """A client that sends all of its 20 MB before it reads gets the 413 and no broken connection."""
    answer = post(served, b" " * 20_000_000)
    assert (answer.status_code, error_of(answer)["code"]) == (413, "too_large")


@pytest.mark.parametrize("number", range(5))
def test_a_client_that_keeps_sending_gets_the_answer(served: GatewayProcess, number: int) -> None:
    """Data beyond the limit is read for a while, because closing a connection with unread data resets it."""
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(20_000_000 // 65_536 + number):
            connection.sendall(chunk)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 413 ")


def test_too_many_inputs_are_a_413(served: GatewayProcess) -> None:
    """A request with 2,049 inputs gets a 413 whose message names the limit of 2,048 and its setting."""
    answer = served.embed({"texts": ["a"] * 2_049})
    assert (answer.status_code, error_of(answer)["code"]) == (413, "too_large")
    assert "limit of 2048: send fewer at once, or raise the setting max_inputs " in error_of(answer)["message"]


def test_a_too_long_text_is_a_413(served: GatewayProcess) -> None:
    """A text with 122,881 characters, one more than the limit, gets a 413 that names the input and the setting."""
    answer = served.embed({"texts": ["a", "b" * 122_881]})
    assert (answer.status_code, error_of(answer)["code"]) == (413, "too_large")
    assert "Input 1" in error_of(answer)["message"]
    assert "raise the setting max_input_chars of the gateway" in error_of(answer)["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "json"])
def test_another_media_type_is_a_415(served: GatewayProcess, kind: str) -> None:
    """A body with another media type is not read as JSON and gets a 415."""
    answer = post(served, b'{"text": "a"}', kind)
    assert (answer.status_code, error_of(answer)["code"]) == (415, "unsupported_media_type")
    assert answer.headers["connection"] == "close", "the gateway waits for the body"


@pytest.mark.parametrize(
    "path", ["/x", "/embed/", "/embed%0A", "/jobs%0A", "/embed/x", "/%00", "/%ff", "/%ed%a0%80", "/..;/a"]
)
def test_an_unknown_path_is_a_404(served: GatewayProcess, path: str) -> None:
    """Any unknown path gets a 404 with the schema of all errors."""
    answer = plain_http.post(f"{served.url}{path}", json={"text": "a"}, headers={"x-request-id": "r-1"})
    assert (answer.status_code, error_of(answer)["code"]) == (404, "not_found")
    assert answer.headers["x-request-id"] == "r-1"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/embed", ["POST"]),
        ("DELETE", "/predict", ["POST"]),
        ("POST", "/health", ["GET"]),
        ("POST", "/jobs/minilm.1", ["DELETE", "GET"]),
    ],
)
def test_a_wrong_method_is_a_405(served: GatewayProcess, method: str, path: str, allowed: list[str]) -> None:
    """A wrong method gets a 405 with the schema of all errors that says which methods to use, as its header does."""
    answer = httpx.request(method, f"{served.url}{path}")
    assert (answer.status_code, error_of(answer)["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == ", ".join(allowed)
    assert error_of(answer)["message"] == f"{method} {path}: use {' or '.join(allowed)}."


def test_a_broken_connection_is_no_error_of_the_gateway(served: GatewayProcess) -> None:
    """After connections that break within a request, the gateway still serves and has logged no error."""
    before = served.program.output.count('"error"')
    for sent in (HEAD + b'Content-Length: 100\r\n\r\n{"text', b"NONSENSE\r\n\r\n", HEAD[:20]):
        with socket.create_connection(("127.0.0.1", served.port)) as connection:
            connection.sendall(sent)
    assert served.embed({"text": "a"}).status_code == 200
    assert served.program.output.count('"error"') == before


@pytest.mark.parametrize("route", ["/embed", "/v1/embeddings", "/tokenize", "/predict"])
def test_a_request_without_a_body_is_told_so(served: GatewayProcess, route: str) -> None:
    """Rather than that a parser has met its end."""
    answer = plain_http.post(f"{served.url}{route}", content=b"", headers={"content-type": "application/json"})
    assert answer.status_code == (422 if route == "/tokenize" else 400)  # as TEI does
    assert "The body is empty: send a JSON object." in answer.text


TEI, OPENAI_ERROR, OWN = "error_type", "type", "request_id"
"""A field that only the errors of one format have."""


@pytest.mark.parametrize(
    ("path", "hint", "field"),
    [
        ("/vertex", "POST /embed takes what is in `instances`", TEI),
        ("/api-doc/openapi.json", "GET /openapi.json", TEI),
        ("/v1/chat/completions", "text is not generated; POST /v1/embeddings", OPENAI_ERROR),
        ("/v1/completions", "text is not generated; POST /v1/embeddings", OPENAI_ERROR),
        ("/chat/completions", "text is not generated; POST /v1/embeddings", OPENAI_ERROR),
        ("/v1/responses", "text is not generated; POST /v1/embeddings", OPENAI_ERROR),
        ("/v1/batches", "POST /jobs", OPENAI_ERROR),
        ("/v1/files/file-1/content", "POST /jobs", OPENAI_ERROR),
        ("/pooling", "POST /embed_all", OPENAI_ERROR),
        ("/detokenize", "POST /decode", OPENAI_ERROR),
        ("/embeddings_image", "only texts", OPENAI_ERROR),
    ],
)
def test_a_route_of_another_server_is_answered_with_what_there_is(
    served: GatewayProcess, path: str, hint: str, field: str
) -> None:
    """In one sentence, in the error format of the clients that call it; it names only routes that are served."""
    answer = plain_http.post(f"{served.url}{path}", json={"query": "a", "texts": ["b"]})
    error = answer.json() if field == TEI else answer.json()["error"]
    message = error["error"] if field == TEI else error["message"]
    assert (answer.status_code, field in error) == (404, True)
    assert message.startswith(f"POST {path}: ")
    assert hint in message
    for method, route in re.findall(r"(POST|GET) (/\S+?)[.,;]?(?: |$)", message.partition(": ")[2]):
        assert route == "/openapi.json" or method in allowed_methods(route)


@pytest.mark.parametrize(
    ("path", "nearest", "field"),
    [
        ("/v1/embedding", "/v1/embeddings", OPENAI_ERROR),
        ("/embedd", "/embed", OWN),
        ("/api/embed", "/embed", OWN),
        ("/healthz", "/health", OWN),
        ("/v1/tokenize", "/tokenize", OPENAI_ERROR),
        ("/models", "/v1/models", OWN),
    ],
)
def test_an_unknown_route_names_the_nearest(served: GatewayProcess, path: str, nearest: str, field: str) -> None:
    """In the error format of the dialect to which the path belongs."""
    answer = plain_http.post(f"{served.url}{path}", json={"query": "a", "texts": ["b"]})
    assert (answer.status_code, field in answer.json()["error"]) == (404, True)
    assert f"did you mean {nearest}?" in answer.text


@pytest.mark.parametrize("path", ["/nothing", "/v3", "/embed" + "d" * 500, "/rerank" * 1_000])
def test_a_route_that_resembles_none_gets_the_list_of_all(served: GatewayProcess, path: str) -> None:
    """Rather than a wild guess: /nothing is not /ping."""
    message = error_of(plain_http.get(f"{served.url}{path}"))["message"]
    assert "did you mean" not in message
    routes = ("/embed, ", "/jobs/{id}/result, ", "/v1/embeddings, ", "/v1/models/{model}", "see /docs")
    assert all(route in message for route in routes)


def test_a_slash_after_the_list_of_models_changes_nothing(served: GatewayProcess) -> None:
    """It names no model: the answer is the list."""
    listed, with_slash = (plain_http.get(f"{served.url}/v1/models{end}") for end in ("", "/"))
    assert (with_slash.status_code, with_slash.json()) == (200, listed.json())
    assert with_slash.headers["content-type"] == listed.headers["content-type"]


def test_a_text_for_a_classifier_is_refused_with_what_there_is(served: GatewayProcess) -> None:
    """The body is TEI's for /predict, and the model is no classifier."""
    answer = plain_http.post(f"{served.url}/predict", json={"inputs": "a text"})
    message = error_of(answer)["message"]
    assert answer.status_code == 400
    assert all(each in message for each in ('{"input": ...}', "is no classifier", "POST /embed"))
