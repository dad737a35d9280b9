"""Requests that are pinned to a revision of their model."""

from __future__ import annotations

import pytest

from api.dialects.request import InferenceRequest, InferenceResult
from api.dialects.revisions import are_revisions, check_unpinned, pin, split_model
from shared.errors import InvalidRequestError
from shared.messages import Failure, Reply, Values, Vectors


def is_served(model: str) -> bool:
    """Whether there is a model of this name."""
    return model == "a@b"


REQUEST = InferenceRequest(("a",), 1_000)
HEADER = {"x-model-revision": "8aad-1"}


@pytest.mark.parametrize(
    ("model", "headers", "expected"),
    [
        (None, {}, (None, "")),
        ("minilm", {}, ("minilm", "")),
        ("minilm@8aad-1", {}, ("minilm", "8aad-1")),
        ("org/a@b@8aad-1", {}, ("org/a@b", "8aad-1")),
        ("a@b", {}, ("a@b", "")),  # the name of a model
        ("a@b@8aad-1", {}, ("a@b", "8aad-1")),
        ("@8aad-1", {}, (None, "8aad-1")),
        (None, HEADER, (None, "8aad-1")),
        ("minilm@8aad-1", HEADER, ("minilm", "8aad-1")),
    ],
)
def test_a_name_or_a_header_pins_a_request(
    model: str | None, headers: dict[str, str], expected: tuple[str | None, str]
) -> None:
    """The name is then that of the model alone."""
    pinned = pin(REQUEST._replace(model=model), headers, is_served)
    assert (pinned.model, pinned.revision) == expected


@pytest.mark.parametrize(
    ("model", "headers"),
    [
        ("minilm@other", HEADER),
        ("minilm@", {}),
        ("minilm@a b", {}),
        (None, {"x-model-revision": ""}),
        (None, {"x-model-revision": "a,b"}),
        (None, {"x-model-revision": "x" * 65}),
    ],
)
def test_what_is_no_revision_is_refused(model: str | None, headers: dict[str, str]) -> None:
    """So are two different ones."""
    with pytest.raises(InvalidRequestError, match="revision"):
        pin(REQUEST._replace(model=model), headers, is_served)


def test_jobs_are_not_pinned() -> None:
    """They would be computed by any revision in silence."""
    check_unpinned("a@b", {}, is_served)
    for model, headers in ((None, HEADER), ("minilm@8aad", {})):
        with pytest.raises(InvalidRequestError, match="A job cannot be pinned"):
            check_unpinned(model, headers, is_served)
    assert split_model("a/b", is_served) == ("a/b", "")


@pytest.mark.parametrize(
    ("parts", "revision"),
    [
        ([Vectors("", 0, 1, 1, b"1234", revision="a")], "a"),
        ([Values("", 0, 1, (b"1",), revision="b"), Values("", 1, 1, (b"1",), revision="a")], "a,b"),
        ([Failure("", 0, 1, "input_failed", "no"), Values("", 1, 1, (b"1",), revision="a")], "a"),
        ([Failure("", 0, 1, "input_failed", "no")], ""),
        ([], ""),
    ],
)
def test_a_result_has_the_revisions_of_its_parts(parts: list[Reply], revision: str) -> None:
    """Several only where the outputs of a function come from several."""
    assert InferenceResult(parts).revision == revision
    assert are_revisions(revision) == bool(revision)


def test_a_revision_that_would_end_a_header_is_none() -> None:
    """It comes from Redis, which others may write."""
    assert not are_revisions("a\r\nset-cookie: x")
    assert not are_revisions("a, b")
