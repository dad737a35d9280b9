"""What is asked of a peer, and which answers are right."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bench.peers.asking import PROBE, WrongAnswer, body_of, check, expected_of_null, vector_of
from bench.peers.vectors import null
from gpuworker.backends.simulated import HashingBackend
from gpuworker.models import parse_model


def test_the_null_vector_is_redbatchs() -> None:
    """To the last bit: all servers do the same work, and are checked by it."""
    texts = ["one", "größer", ""]
    backend = HashingBackend(parse_model("null"))
    theirs = backend.run(backend.collate(backend.tokenize(texts)), alone=False)
    assert null(texts).dtype == theirs.dtype
    assert np.array_equal(null(texts), theirs)
    assert np.array_equal(expected_of_null(), null([PROBE])[0])


@pytest.mark.parametrize(
    ("form", "answer"),
    [
        ("text", {"embedding": [1.0, 0.5]}),
        ("texts", [[1.0, 0.5]]),
        ("openai", {"object": "list", "data": [{"embedding": [1.0, 0.5]}]}),
    ],
)
def test_each_form_of_answer_is_read(form: str, answer: object) -> None:
    """The peers do not answer alike."""
    assert vector_of(form, json.dumps(answer).encode()).tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    "answer",
    [b"", b"<html>", b"{}", b"[]", b'{"embedding": null}', b'{"embedding": [[1, 2]]}', b'{"embedding": ["a"]}'],
)
def test_an_answer_without_a_vector_is_wrong(answer: bytes) -> None:
    """Whatever it is instead."""
    with pytest.raises(WrongAnswer, match="no vector"):
        vector_of("text", answer)


def test_a_body_holds_the_text_in_the_form_that_the_peer_takes() -> None:
    """In UTF-8, as Redbatch gets it."""
    assert body_of("text", "größer") == '{"text": "größer"}'.encode()
    assert json.loads(body_of("texts", "a")) == {"text": ["a"]}
    assert json.loads(body_of("openai", "a")) == {"input": "a", "model": "minilm"}


def test_the_null_vector_must_be_right_in_every_number() -> None:
    """An error of a rounding is none, one of a millionth is."""
    expected = expected_of_null()
    check("null", expected + 5e-7, expected)
    with pytest.raises(WrongAnswer, match="off by"):
        check("null", expected + 2e-6, expected)


def test_the_models_vector_must_point_where_that_of_encode_does() -> None:
    """Cosine above 0.99999: other kernels round otherwise; a short format, another model or text points elsewhere."""
    expected = np.array([0.6, 0.8])
    check("minilm", np.array([0.601, 0.80]), expected)
    for wrong in ([0.605, 0.797], [-0.6, -0.8], [0.0, 0.0], [float("nan"), 1.0]):
        with pytest.raises(WrongAnswer, match="cosine"):
            check("minilm", np.array(wrong), expected)


def test_a_vector_of_another_length_is_wrong() -> None:
    """Before its numbers are looked at."""
    with pytest.raises(WrongAnswer, match="3 numbers instead of 2"):
        check("minilm", np.ones(3), np.ones(2))
