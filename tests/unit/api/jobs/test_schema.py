"""The body of POST /jobs."""

from __future__ import annotations

import pytest

from api.dialects.parsing import MAX_PARTS
from api.dispatch.size_limits import InputLimit
from api.jobs.kinds import PAIRS
from api.jobs.ndjson import NdjsonReader
from api.jobs.schema import parse_job_body
from shared.errors import InvalidRequestError, TooLargeError


def test_more_texts_than_a_document_may_hold_can_be_sent_as_lines() -> None:
    """The error names the bound and what to do, and that works: a line has the bound, and a body of lines has not."""
    texts = [b'"a"'] * (MAX_PARTS + 1)
    with pytest.raises(TooLargeError, match=rf"too many texts.*over {MAX_PARTS}: .* in lines \(application/x-ndjson\)"):
        parse_job_body(b'{"texts": [' + b",".join(texts) + b"]}")
    reader = NdjsonReader(len(texts), 50, InputLimit(10 * MAX_PARTS, "setting"))
    assert len(reader.feed(b"\n".join(texts)) + reader.end()) == len(texts)


@pytest.mark.parametrize("name", [b"x", b"\\u0069nputs", b"inputs"])
def test_the_parts_of_each_body_are_counted(name: bytes) -> None:
    """Neither an unknown field nor an escaped name avoids the bound."""
    body = b'{"' + name + b'": [' + b",".join([b"[]"] * (MAX_PARTS + 1)) + b"]}"
    with pytest.raises(TooLargeError, match="too many"):
        parse_job_body(body)


def test_a_time_limit_is_refused_with_the_route_that_takes_it() -> None:
    """As its header is: the field exists on other routes."""
    with pytest.raises(InvalidRequestError, match=r"^timeout_ms: leave it out: .* Prefer: respond-async may have it"):
        parse_job_body(b'{"text": "a", "timeout_ms": 1000}')


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"query": "a"}', "Send a query, and documents"),
        (b'{"documents": ["a"]}', "Send a query, and documents"),
        (b'{"query": "a", "documents": []}', "Send a query, and documents"),
        (b'{"query": "a", "texts": ["b"]}', "one of them"),
        (b'{"query": "a", "documents": ["b"], "inputs": [1]}', "one of them"),
        (b'{"query": "a", "documents": ["b"], "normalize": true}', "normalize: a reranker has no such option"),
    ],
)
def test_an_incomplete_body_of_pairs_is_refused(body: bytes, message: str) -> None:
    """The error says what is missing or has no effect."""
    with pytest.raises(InvalidRequestError, match=message):
        parse_job_body(body).values()


def test_a_body_of_pairs_has_one_query() -> None:
    """With the options of truncation, which apply to both texts."""
    body = parse_job_body(b'{"query": "a", "documents": ["b", ""], "truncation_direction": "left"}')
    assert (body.kind, body.query, body.values(), body.options.truncate) == (PAIRS, "a", ["b", ""], "left")
