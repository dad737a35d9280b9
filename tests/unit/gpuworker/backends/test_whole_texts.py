"""Models that run through `encode`: prompts, normalization and truncation are those of `encode`, or refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

from gpuworker.backends.base import InputRefusedError
from gpuworker.backends.sentence import SentenceBackend
from gpuworker.model_spec import parse_model
from shared.codec import encode_ids
from shared.messages import DEFAULT_OPTIONS, Options
from tests.unit.gpuworker.backends.options import OPTIONS
from tests.unit.gpuworker.backends.test_architectures import ARCHITECTURES, build

pytestmark = pytest.mark.model

TEXTS = ["hello", "A longer text, of more words than the first one has.", "x " * 700, "hello"]
PROMPTS = {"query": "search for: ", "document": "", "title": "the title is "}


@pytest.fixture(scope="module", params=[None, "title", "document"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A static model with seeded weights, which normalizes; with a default prompt, or none."""
    torch.manual_seed(3)
    words = SentenceTransformer(parse_model("minilm").path).tokenizer.backend_tokenizer
    modules: list[torch.nn.Module] = [StaticEmbedding(words, embedding_dim=32), Normalize()]
    path = tmp_path_factory.mktemp("static")
    SentenceTransformer(modules=modules, prompts=PROMPTS, default_prompt_name=request.param).save(str(path))
    return path


@pytest.fixture(scope="module")
def backend(folder: Path) -> SentenceBackend:
    """The model as a worker runs it."""
    return SentenceBackend(parse_model(str(folder)), OPTIONS)


@pytest.fixture(scope="module")
def model(folder: Path) -> SentenceTransformer:
    """The model as its authors run it."""
    return SentenceTransformer(str(folder))


def vectors(backend: SentenceBackend, *named: str | None, raw: bool = False) -> NDArray[np.float32]:
    """Returns the vectors of one batch, which has the texts with each of these prompts in turn."""
    read = [backend.tokenize(TEXTS, Options(prompt_name=name)) for name in named]
    batch = [each for texts in zip(*read, strict=True) for each in texts]
    return np.asarray(backend.run(backend.collate(batch), exclusive=True, raw=raw))


@pytest.mark.parametrize("name", [None, *PROMPTS])
def test_a_prompt_is_that_of_encode(backend: SentenceBackend, model: SentenceTransformer, name: str | None) -> None:
    """It goes before each text; without a name it is the default prompt of the model."""
    assert np.abs(vectors(backend, name) - model.encode(TEXTS, prompt_name=name)).max() <= 1e-5


def test_an_empty_name_is_no_prompt(backend: SentenceBackend, model: SentenceTransformer) -> None:
    """Not even the default one, as with an empty prompt of `encode`."""
    assert np.abs(vectors(backend, "") - model.encode(TEXTS, prompt="")).max() <= 1e-5


def test_a_batch_may_have_several_prompts(backend: SentenceBackend, model: SentenceTransformer) -> None:
    """Each text of it has the vector with its prompt."""
    names = ["query", None, "title"]
    expected = np.stack([model.encode(TEXTS, prompt_name=name) for name in names], axis=1).reshape(-1, 32)
    assert np.abs(vectors(backend, *names) - expected).max() <= 1e-5


def test_a_prompt_that_the_model_does_not_have_is_refused(backend: SentenceBackend) -> None:
    """The error names the prompts that it has."""
    with pytest.raises(InputRefusedError, match="it has document, query, title"):
        backend.tokenize(["a"], Options(prompt_name="no such"))


def test_raw_vectors_are_those_before_normalization(backend: SentenceBackend, model: SentenceTransformer) -> None:
    """They are those of the model without its last step, and have its prompts too."""
    unnormalized = SentenceTransformer(modules=list(model)[:-1], prompts=PROMPTS, device="cpu")
    expected = unnormalized.encode(TEXTS, prompt_name="query")
    assert abs(np.linalg.norm(expected, axis=1) - 1).min() > 0.1
    assert np.abs(vectors(backend, "query", raw=True) - expected).max() <= 1e-5
    assert np.abs(np.linalg.norm(vectors(backend, "query"), axis=1) - 1).max() <= 1e-5


@pytest.mark.parametrize("truncate", ["left", "no"])
def test_a_model_without_a_maximum_length_cuts_nothing(backend: SentenceBackend, truncate: str) -> None:
    """So either side is right, and so is none."""
    read = backend.tokenize(TEXTS, Options(truncate=truncate))  # type: ignore[arg-type]
    assert [*read] == [*backend.tokenize(TEXTS)]


def test_a_transformer_whose_pooling_leaves_out_the_prompt_runs_through_encode(tmp_path: Path) -> None:
    """Its prompts are those of `encode`, which cuts long texts at the right only: the error says so."""
    model = SentenceTransformer(str(build(ARCHITECTURES["BERT"], tmp_path)), prompts=PROMPTS)
    model[1].include_prompt = False  # type: ignore[assignment]
    model.save(str(tmp_path / "own"))
    model = SentenceTransformer(str(tmp_path / "own"))
    backend = SentenceBackend(parse_model(str(tmp_path / "own")), OPTIONS)
    found = vectors(backend, "query")
    assert np.abs(found - model.encode(TEXTS, prompt_name="query")).max() <= 1e-5
    assert np.abs(found - model.encode([PROMPTS["query"] + text for text in TEXTS])).max() > 1e-3
    for truncate in ("left", "no"):
        with pytest.raises(InputRefusedError, match="cuts long texts itself, at the right"):
            backend.tokenize(["a"], Options(truncate=truncate))


def test_token_ids_are_refused(backend: SentenceBackend) -> None:
    """The tokenizer of such a model is internal to it."""
    with pytest.raises(InputRefusedError, match="texts, no token ids"):
        backend.tokenize(["a", encode_ids([1])], DEFAULT_OPTIONS)
