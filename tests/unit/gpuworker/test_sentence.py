"""Models other than the bundled one, from a folder: what the backend gives is what `encode` gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from gpuworker.backends.sentence import SentenceBackend, Tokenized, Whole
from gpuworker.models import ModelError, parse_model

pytestmark = pytest.mark.model

TEXTS = ["hello", "A longer text, of more words than the first one has.", "Ünïcödé 漢字", "x " * 700]


def test_a_model_without_a_transformer_is_given_whole_texts(tmp_path: Path) -> None:
    """A static embedding has no transformer to take apart: its texts go through `encode`."""
    words = SentenceTransformer(parse_model("minilm").path).tokenizer.backend_tokenizer
    SentenceTransformer(modules=[StaticEmbedding(words, embedding_dim=32)]).save(str(tmp_path))
    backend = SentenceBackend(parse_model(str(tmp_path)), "cpu")
    inputs = backend.tokenize(TEXTS)
    assert all(isinstance(each, Whole) and each.tokens >= 1 for each in inputs)
    expected = SentenceTransformer(str(tmp_path)).encode(TEXTS)
    assert backend.dim == 32
    assert np.abs(backend.run(backend.collate(inputs)) - expected).max() <= 1e-5


def test_a_default_prompt_is_put_before_each_text(tmp_path: Path) -> None:
    """A model that names a default prompt gets it, as `encode` puts it."""
    model = SentenceTransformer(parse_model("minilm").path, prompts={"query": "query: "}, default_prompt_name="query")
    model.save(str(tmp_path))
    backend = SentenceBackend(parse_model(str(tmp_path)), "cpu")
    inputs = backend.tokenize(TEXTS)
    assert all(isinstance(each, Tokenized) for each in inputs)
    expected = SentenceTransformer(str(tmp_path)).encode(TEXTS)
    assert np.abs(backend.run(backend.collate(inputs)) - expected).max() <= 1e-5


def test_a_folder_that_holds_no_model_is_told_in_one_line(tmp_path: Path) -> None:
    """The message names the model, and is short enough for a terminal."""
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ModelError, match="cannot be loaded") as caught:
        SentenceBackend(parse_model(str(tmp_path)), "cpu")
    assert "\n" not in str(caught.value)
