"""Multi-vector encoders: vectors and scores are those of the library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import MultiVectorEncoder

from gpuworker.backends.base import InputRefusedError
from gpuworker.backends.multi_vector_encoder import MultiVectorBackend
from gpuworker.backends.selection import load_backend
from gpuworker.model_spec import ModelLoadError, ops_of, parse_model
from shared.messages import EMBED_ALL, MULTI_VECTOR, MULTI_VECTOR_OPS, SCORE, Options
from tests.multi_vector_models import DOCUMENT_TOKENS, QUERY_TOKENS, TOKEN_DIM, build_multi_vector_encoder
from tests.unit.gpuworker.backends.options import OPTIONS

pytestmark = pytest.mark.model

TEXTS = ["a", "to be, or not to be?", "x y z " * 30, "Ünïcödé 漢字", "?!", "a"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model."""
    return build_multi_vector_encoder(tmp_path_factory.mktemp("colbert"))


@pytest.fixture(scope="module")
def backend(folder: Path) -> MultiVectorBackend:
    """A loaded backend."""
    backend = load_backend(parse_model(str(folder)), OPTIONS)
    assert isinstance(backend, MultiVectorBackend)
    return backend


@pytest.fixture(scope="module")
def model(folder: Path) -> MultiVectorEncoder:
    """The reference."""
    return MultiVectorEncoder(str(folder), device="cpu")


def vectors(backend: MultiVectorBackend, texts: Sequence[str], prompt_name: str | None = None) -> list[np.ndarray]:
    """Returns the vectors of texts in one batch."""
    batch = backend.collate(backend.tokenize(texts, Options(prompt_name)))
    found = backend.run(batch, EMBED_ALL, exclusive=True)
    parts = backend.run_parts(batch, [frozenset({MULTI_VECTOR})] * len(texts), exclusive=False)
    for each, part in zip(found, parts, strict=True):
        assert part.multi_vector is not None
        assert np.abs(each - part.multi_vector).max() <= 1e-6
    return list(found)


def test_vectors_are_those_of_the_library(backend: MultiVectorBackend, model: MultiVectorEncoder) -> None:
    """Of documents, which lack punctuation; of queries, which are filled up; with another prompt, and with none."""
    assert backend.dim == TOKEN_DIM
    for prompt_name, expected in (
        (None, model.encode_document(TEXTS)),
        ("document", model.encode_document(TEXTS)),
        ("query", model.encode_query(TEXTS)),
        ("title", model.encode(TEXTS, "title", task="document")),
        ("", model.encode(TEXTS, prompt="", task="document")),
    ):
        found = vectors(backend, TEXTS, prompt_name)
        for each, reference in zip(found, expected, strict=True):
            assert each.shape == reference.shape
            assert np.abs(each - reference.numpy()).max() <= 1e-5
    assert {len(each) for each in vectors(backend, TEXTS[:2], "query")} == {QUERY_TOKENS}
    assert len(vectors(backend, [TEXTS[2]])[0]) == DOCUMENT_TOKENS


def test_scores_are_those_of_late_interaction(backend: MultiVectorBackend, model: MultiVectorEncoder) -> None:
    """The sum, over the tokens of the query, of the largest dot product with a token of the document."""
    queries = ["a", "to be"]
    pairs = [(query, text) for query in queries for text in TEXTS]
    inputs = [each for query, text in pairs for each in backend.tokenize([text], Options(query=query))]
    found = np.asarray(backend.run(backend.collate(inputs), SCORE, exclusive=False))
    assert found.shape == (len(pairs), 1)
    firsts, seconds = model.encode_query(queries), model.encode_document(TEXTS)
    expected = [(first, second) for first in firsts for second in seconds]
    for [score], (first, second) in zip(found.tolist(), expected, strict=True):
        products = first.numpy() @ second.numpy().T
        assert abs(score - products.max(axis=1).sum()) <= 1e-4


def test_a_backend_describes_itself(backend: MultiVectorBackend, folder: Path) -> None:
    """Its operations are known before it is loaded; its tokenizer is there for /tokenize."""
    assert backend.ops == frozenset(ops_of(str(folder))) == frozenset(MULTI_VECTOR_OPS)
    assert [each["text"] for each in backend.show_tokens(["ab"], Options(prompt_name=""))[0]][1:3] == ["a", "b"]


def test_what_the_library_cannot_do_is_refused(backend: MultiVectorBackend, folder: Path) -> None:
    """The errors say what to leave out."""
    with pytest.raises(InputRefusedError, match="no token ids"):
        backend.tokenize([b"\0\0\0\0"])
    for options, reason in (
        (Options("other"), "no such prompt"),
        (Options(truncate="no"), "leave truncate=false and truncation_direction=left out"),
        (Options(instruction="Find it"), "instruction: this model has no place for one"),
        (Options(max_tokens=9), "name no other"),
        (Options(query="a", max_query_tokens=9), "name no other"),
        (Options(query="a", max_document_tokens=9), "name no other"),
    ):
        with pytest.raises(InputRefusedError, match=reason):
            backend.tokenize(["a"], options)
    for of_engine in (replace(OPTIONS, backend="onnx"), replace(OPTIONS, compile=True)):
        with pytest.raises(ModelLoadError, match="leave out --backend and --compile"):
            load_backend(parse_model(str(folder)), of_engine)
