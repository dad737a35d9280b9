"""The last layer for the first token of each text alone.

Logits are compared in test_cross_encoder, and vectors in test_architectures.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from gpuworker.backends import first_tokens
from gpuworker.backends.cross_encoder import CrossEncoderBackend
from gpuworker.backends.sentence import SentenceBackend
from gpuworker.model_spec import parse_model
from shared.messages import EMBED_ALL, SCORE, Options
from tests.unit.gpuworker.backends import test_architectures
from tests.unit.gpuworker.backends.options import OPTIONS
from tests.unit.gpuworker.backends.test_cross_encoder import ARCHITECTURES, TEXTS, load

pytestmark = pytest.mark.model

SHORT = TEXTS[:3]


def saved(folder: Path, name: str) -> Path:
    """Returns the folder of a reranker of two layers."""
    torch.manual_seed(3)
    ARCHITECTURES[name]().save_pretrained(folder)
    AutoTokenizer.from_pretrained(parse_model("minilm").path).save_pretrained(folder)
    return folder


def tokens_of_layers(model: Any, run: Any) -> list[int]:  # noqa: ANN401 - any transformer, any function
    """Returns how many tokens each layer reads after its attention, in the order of the layers."""
    seen: list[int] = []
    layers = model.base_model.encoder.layer
    hooks = [
        layer.intermediate.register_forward_pre_hook(lambda _, given: seen.append(given[0][..., 0].numel()))
        for layer in layers
    ]
    run()
    for hook in hooks:
        hook.remove()
    return seen


@pytest.mark.parametrize("name", ["BERT", "ELECTRA", "RoBERTa", "XLM-RoBERTa", "CamemBERT"])
def test_the_last_layer_computes_one_token_of_each_text(tmp_path: Path, name: str) -> None:
    """The layers before it compute all tokens."""
    backend = load(saved(tmp_path, name))
    assert isinstance(backend, CrossEncoderBackend)
    encoded = backend.tokenize(SHORT, Options(query="fox"))
    tokens = sum(each.tokens for each in encoded)
    model = backend._runner.model.transformers_model
    layers = tokens_of_layers(model, lambda: backend.run(backend.collate(encoded), SCORE, exclusive=False))
    assert layers == [tokens, len(SHORT)]


def embedding_backend(folder: Path, name: str, pooling: str) -> SentenceBackend:
    """Returns the backend of an embedding model of two layers."""
    architecture = test_architectures.ARCHITECTURES[name]._replace(pooling=pooling)
    return SentenceBackend(parse_model(str(test_architectures.build(architecture, folder))), OPTIONS)


@pytest.mark.parametrize("name", ["BERT", "ELECTRA", "RoBERTa", "XLM-RoBERTa"])
def test_so_does_that_of_an_embedding_model_whose_pooling_reads_it(tmp_path: Path, name: str) -> None:
    """Also with vectors that are not normalized; but not if a request is for the vectors of all tokens."""
    backend = embedding_backend(tmp_path, name, "cls")
    encoded = backend.tokenize(SHORT)
    tokens = sum(each.tokens for each in encoded)
    body = backend._runner.model[0].model
    for raw in (False, True):
        run = partial(backend.run, backend.collate(encoded), exclusive=False, raw=raw)
        assert tokens_of_layers(body, run) == [tokens, len(SHORT)]
    run = partial(backend.run, backend.collate(encoded), EMBED_ALL, exclusive=False)
    assert tokens_of_layers(body, run) == [tokens, tokens]


def test_a_pooling_that_reads_all_tokens_gets_all(tmp_path: Path) -> None:
    """The mean needs each of them."""
    backend = embedding_backend(tmp_path, "BERT", "mean")
    encoded = backend.tokenize(SHORT)
    tokens = sum(each.tokens for each in encoded)
    run = partial(backend.run, backend.collate(encoded), exclusive=False)
    assert tokens_of_layers(backend._runner.model[0].model, run) == [tokens, tokens]


def test_a_model_without_a_transformer_stays_as_it_is() -> None:
    """Such a model has no layers of which the head reads tokens."""
    first_tokens.give_to_head(None)
    first_tokens.give_to_head(torch.nn.Linear(2, 2))
