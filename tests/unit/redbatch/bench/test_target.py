"""The server under load, and requests as bytes."""

from __future__ import annotations

import json

import pytest

from redbatch.bench.target import encode_body, encode_request, encode_requests, parse_header, parse_target


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/embed"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/embed"),
        ("localhost:8080", "http://localhost:8080/embed"),
        ("https://host/v1/embed?a=b", "https://host/v1/embed?a=b"),
        ("http://[::1]:80/x", "http://[::1]:80/x"),
    ],
)
def test_a_url_without_a_path_means_embed(url: str, expected: str) -> None:
    """A URL without a path means /embed; a given path is kept."""
    assert parse_target(url).url == expected


def test_a_route_may_be_given_beside_the_url() -> None:
    """But not twice."""
    assert parse_target("host:8080", "/predict").url == parse_target("host:8080/", "/predict").url
    assert parse_target("host:8080", "/predict").path == "/predict"
    with pytest.raises(ValueError, match="--path /predict: the URL names the route /embed already"):
        parse_target("host/embed", "/predict")


def test_the_port_follows_from_the_scheme() -> None:
    """Without a port, the scheme determines it."""
    plain, tls = parse_target("http://host"), parse_target("https://host")
    assert (plain.port, plain.tls, tls.port, tls.tls) == (80, False, 443, True)


@pytest.mark.parametrize("url", ["ftp://host", "http://", "http://host:99999", "http://user:pw@host", "http://h/a b"])
def test_an_invalid_url_is_refused(url: str) -> None:
    """An invalid URL is refused with a message."""
    with pytest.raises(ValueError, match="http"):
        parse_target(url)


def test_a_header_is_name_colon_value() -> None:
    """Spaces around the value are removed."""
    assert parse_header("Authorization: Bearer x: y") == ("Authorization", "Bearer x: y")


@pytest.mark.parametrize("text", ["novalue", ": x", "a b: c", "x: a\r\nEvil: 1", "Content-Length: 3"])
def test_a_header_that_would_break_the_request_is_refused(text: str) -> None:
    """A header must not contain line breaks, nor determine the length of the request."""
    with pytest.raises(ValueError, match=r"header|load generator"):
        parse_header(text)


def test_a_body_has_the_simple_form_for_one_text() -> None:
    """The body has `text` for one text and `texts` for several, in plain UTF-8."""
    assert json.loads(encode_body(["a"])) == {"text": "a"}
    assert json.loads(encode_body(["a", "zwölf"])) == {"texts": ["a", "zwölf"]}
    assert "zwölf".encode() in encode_body(["zwölf"])


def test_a_request_is_complete() -> None:
    """A request has a head, the length of the body in bytes, and the body; given headers replace default ones."""
    target = parse_target("http://host:1/p")
    request = encode_request(target, [("content-type", "text/x"), ("X-Timeout-Ms", "5")], "ö".encode())
    head, _, body = request.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /p HTTP/1.1"
    assert sorted(lines[1:]) == sorted(
        ["Host: host:1", "User-Agent: redbatch-bench", "content-type: text/x", "X-Timeout-Ms: 5", "Content-Length: 2"]
    )
    assert body.decode() == "ö"


def test_encoded_requests_are_limited_in_bytes() -> None:
    """The memory for requests is limited; at least one request is encoded."""
    target = parse_target("http://host")
    endless_requests = (("text",) for _ in iter(int, 1))
    assert len(encode_requests(target, [], endless_requests, max_bytes=1)) == 1
