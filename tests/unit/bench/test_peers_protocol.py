"""Requests to a peer, and the check of its answers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bench.peers.models import null
from bench.peers.protocol import (
    PROBE,
    WrongVectorError,
    check_vector,
    decode_vector,
    encode_request,
    expected_null_vector,
)
from gpuworker.backends.simulated import SimulatedBackend
from gpuworker.model_spec import parse_model


def test_the_null_vector_is_redbatchs() -> None:
    """Both are equal to the last bit: all servers do the same work, and this vector checks their answers."""
    texts = ["one", "größer", ""]
    backend = SimulatedBackend(parse_model("null"))
    theirs = backend.run(backend.collate(backend.tokenize(texts)), exclusive=False)
    assert null(texts).dtype == theirs.dtype
    assert np.array_equal(null(texts), theirs)
    assert np.array_equal(expected_null_vector(), null([PROBE])[0])


@pytest.mark.parametrize(
    ("form", "answer"),
    [
        ("text", {"embedding": [1.0, 0.5]}),
        ("texts", [[1.0, 0.5]]),
        ("openai", {"object": "list", "data": [{"embedding": [1.0, 0.5]}]}),
        ("kserve", {"model_name": "embed", "outputs": [{"name": "embedding", "shape": [1, 2], "data": [1.0, 0.5]}]}),
    ],
)
def test_each_form_of_answer_is_read(form: str, answer: object) -> None:
    """The peers return different JSON."""
    assert decode_vector(form, json.dumps(answer).encode()).tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    "answer",
    [b"", b"<html>", b"{}", b"[]", b'{"embedding": null}', b'{"embedding": [[1, 2]]}', b'{"embedding": ["a"]}'],
)
def test_an_answer_without_a_vector_is_wrong(answer: bytes) -> None:
    """Invalid JSON, other JSON and other values raise WrongVectorError."""
    with pytest.raises(WrongVectorError, match="no vector"):
        decode_vector("text", answer)


def test_a_body_holds_the_text_in_the_form_that_the_peer_takes() -> None:
    """The text is in UTF-8, as in requests to Redbatch."""
    assert encode_request("text", "größer") == '{"text": "größer"}'.encode()
    assert json.loads(encode_request("texts", "a")) == {"text": ["a"]}
    assert json.loads(encode_request("openai", "a")) == {"input": "a", "model": "minilm"}
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1, 1], "data": ["größer"]}
    assert json.loads(encode_request("kserve", "größer")) == {"inputs": [tensor]}


def test_the_null_vector_must_be_right_in_every_number() -> None:
    """A rounding error is accepted, an error of 2e-6 is not."""
    expected = expected_null_vector()
    check_vector("null", expected + 5e-7, expected)
    with pytest.raises(WrongVectorError, match="off by"):
        check_vector("null", expected + 2e-6, expected)


def test_the_models_vector_must_have_the_direction_of_that_of_encode() -> None:
    """The cosine must exceed 0.99999: other kernels pass; a shorter format, another model or another text fails."""
    expected = np.array([0.6, 0.8])
    check_vector("minilm", np.array([0.601, 0.80]), expected)
    for wrong in ([0.605, 0.797], [-0.6, -0.8], [0.0, 0.0], [float("nan"), 1.0]):
        with pytest.raises(WrongVectorError, match="cosine"):
            check_vector("minilm", np.array(wrong), expected)


def test_a_vector_of_another_length_is_wrong() -> None:
    """The lengths are compared before the numbers."""
    with pytest.raises(WrongVectorError, match="3 numbers instead of 2"):
        check_vector("minilm", np.ones(3), np.ones(2))
