"""Sparse encoders: the weights are those of the library's `encode`."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sparse_encoder.modules import SpladePooling
from transformers import BertConfig, BertForMaskedLM, ByT5Tokenizer

from gpuworker.backends.base import Backend
from gpuworker.backends.selection import load_backend
from gpuworker.backends.sparse_encoder import encode_weights
from gpuworker.model_spec import ModelLoadError, parse_model
from shared.messages import EMBED_SPARSE, SPARSE_OPS, Options
from tests.sparse_models import build_sparse_encoder
from tests.unit.gpuworker.backends.options import OPTIONS
from tests.unit.gpuworker.backends.test_architectures import SIZES

pytestmark = pytest.mark.model

TEXTS = ["", "hello", "A longer text, of more words.", "Ünïcödé 漢字 🙂", "hello", "one two three " * 30, "x " * 700]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved sparse encoder."""
    return build_sparse_encoder(tmp_path_factory.mktemp("sparse"))


@pytest.fixture(scope="module", params=["packed", "padded"])
def backend(folder: Path, request: pytest.FixtureRequest) -> Backend:
    """A loaded backend; with shapes, batches are padded."""
    buckets = "off" if request.param == "packed" else "on"
    backend = load_backend(parse_model(str(folder)), replace(OPTIONS, shape_buckets=buckets))
    assert backend.packs is (request.param == "packed")
    return backend


def reference(folder: Path, texts: list[str], **options: Any) -> NDArray[np.float32]:  # noqa: ANN401 - of the library
    """Returns what the library returns for each text by itself."""
    model = SparseEncoder(str(folder), device="cpu")
    rows = [model.encode([each], convert_to_sparse_tensor=False, **options)[0].numpy() for each in texts]
    return np.stack(rows)


def weights(backend: Backend, texts: list[str], options: Options = Options(), *, exclusive: bool = False) -> Any:  # noqa: ANN401, B008 - JSON; a tuple
    """Returns the outputs for texts in one batch, as arrays over the vocabulary."""
    found = backend.run(backend.collate(backend.tokenize(texts, options)), EMBED_SPARSE, exclusive=exclusive)
    vectors = np.zeros((len(texts), 30_522), dtype=np.float32)
    for vector, data in zip(vectors, found, strict=True):
        parts = json.loads(data)
        indices = [each["index"] for each in parts]
        assert indices == sorted(set(indices))
        assert all(each["value"] > 0 for each in parts)
        vector[indices] = [each["value"] for each in parts]
    return vectors


def test_weights_are_those_of_encode(backend: Backend, folder: Path) -> None:
    """In a batch of all lengths, on one core or all, and in batches at the same time: within 1e-5."""
    expected = reference(folder, TEXTS)
    assert 0 < (expected > 0).sum(axis=1).mean() < 5_000
    for exclusive in (True, False):
        assert np.abs(weights(backend, TEXTS, exclusive=exclusive) - expected).max() <= 1e-5
    pairs = [[i, (i + 1) % len(TEXTS)] for i in range(len(TEXTS))]
    with ThreadPoolExecutor(2) as pool:
        for pair, found in zip(
            pairs, pool.map(lambda pair: weights(backend, [TEXTS[i] for i in pair]), pairs), strict=True
        ):
            assert np.abs(found - expected[pair]).max() <= 1e-5


def test_prompts(backend: Backend, folder: Path) -> None:
    """The model's own, by its name."""
    found = weights(backend, ["hello"], Options(prompt_name="query"))
    assert np.abs(found - reference(folder, ["hello"], prompt_name="query")).max() <= 1e-5


def test_a_backend_describes_itself(backend: Backend) -> None:
    """It has no vectors of numbers, and its operations are those of a sparse encoder."""
    assert (backend.dim, frozenset(backend.ops)) == (0, frozenset(SPARSE_OPS))
    assert backend.max_input_tokens == 512


def test_a_runtime_is_refused(folder: Path) -> None:
    """ONNX graphs are made of models of embeddings."""
    with pytest.raises(ModelLoadError, match="is a sparse encoder: use --backend torch"):
        load_backend(parse_model(str(folder)), replace(OPTIONS, backend="onnx"))


def test_a_model_without_a_fast_tokenizer_is_refused(tmp_path: Path) -> None:
    """The error says what the model lacks: a tokenizer of bytes is Python code."""
    torch.manual_seed(7)
    transformer = tmp_path / "transformer"
    BertForMaskedLM(BertConfig(vocab_size=384, **SIZES)).save_pretrained(transformer)
    ByT5Tokenizer().save_pretrained(transformer)
    modules = [Transformer(str(transformer), transformer_task="fill-mask"), SpladePooling()]
    SparseEncoder(modules=modules, device="cpu").save_pretrained(str(tmp_path / "splade"))
    with pytest.raises(ModelLoadError, match="a sparse encoder needs a transformer with a fast tokenizer"):
        load_backend(parse_model(str(tmp_path / "splade")), OPTIONS)


def test_weights_as_json() -> None:
    """In the order of the indices, without zeros, each number as short as float32 allows."""
    assert encode_weights(np.array([0, 0.1, 0, 1.5], dtype=np.float32)) == (
        b'[{"index":1,"value":0.1},{"index":3,"value":1.5}]'
    )
    assert encode_weights(np.zeros(3, dtype=np.float32)) == b"[]"
