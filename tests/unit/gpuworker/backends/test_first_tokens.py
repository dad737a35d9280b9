"""The last layer for the first token of each text alone.

Logits are compared in test_cross_encoder.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Pooling
from transformers import AutoTokenizer

from gpuworker.backends import first_tokens
from gpuworker.backends.cross_encoder import CrossEncoderBackend
from gpuworker.backends.sentence import SentenceBackend
from gpuworker.ipc.engine_options import EngineOptions
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


def embedding_backend(folder: Path, name: str, pooling: str, options: EngineOptions = OPTIONS) -> SentenceBackend:
    """Returns the backend of an embedding model of two layers."""
    architecture = test_architectures.ARCHITECTURES[name]._replace(pooling=pooling)
    return SentenceBackend(parse_model(str(test_architectures.build(architecture, folder))), options)


def expected_of(folder: Path) -> Any:  # noqa: ANN401 - vectors
    """Returns the vectors of the model in `embedding_backend`'s folder, by `encode`."""
    return SentenceTransformer(str(folder / "whole")).encode(SHORT)


@pytest.mark.parametrize("name", ["BERT", "ELECTRA", "RoBERTa", "XLM-RoBERTa", "CamemBERT"])
def test_so_does_that_of_an_embedding_model_whose_pooling_reads_it(tmp_path: Path, name: str) -> None:
    """Also with vectors that are not normalized; but not if a request is for the vectors of all tokens."""
    backend = embedding_backend(tmp_path, name, "cls")
    encoded = backend.tokenize(SHORT)
    tokens = sum(each.tokens for each in encoded)
    body = backend._runner.model[0].model
    for raw in (False, True):
        vectors: list[Any] = []
        run = partial(backend.run, backend.collate(encoded), exclusive=False, raw=raw)
        assert tokens_of_layers(body, lambda run=run, found=vectors: found.append(run())) == [tokens, len(SHORT)]
        assert np.abs(np.asarray(vectors[0]) - expected_of(tmp_path)).max() <= 1e-5
    run = partial(backend.run, backend.collate(encoded), EMBED_ALL, exclusive=False)
    assert tokens_of_layers(body, run) == [tokens, tokens]


def test_in_bfloat16_the_vectors_are_those_of_all_tokens(tmp_path: Path) -> None:
    """The pooling then gets float32, by a hook that the transformer has after the steps are made."""
    options = replace(OPTIONS, dtype="bfloat16")
    backend = embedding_backend(tmp_path, "BERT", "cls", options)
    runner = backend._runner
    assert runner.first_token_steps is not None
    batch = backend.collate(backend.tokenize(SHORT))
    found = np.asarray(backend.run(batch, exclusive=False))
    runner.first_token_steps = None
    assert found.dtype == np.float32
    assert np.abs(found - np.asarray(backend.run(batch, exclusive=False))).max() <= 1e-2


@pytest.mark.parametrize("fault", ["other", "raises"])
def test_where_the_vectors_would_differ_all_tokens_are_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """The model still runs without padding."""

    def wrong(layer: Any, usual: Any, hidden: torch.Tensor, *arguments: Any, **named: Any) -> torch.Tensor:  # noqa: ANN401
        if fault == "raises":
            raise RuntimeError("no")
        return hidden[:, : len(named["cu_seq_lens_q"]) - 1].transpose(0, 1)

    monkeypatch.setattr(first_tokens, "_run_last_layer", wrong)
    backend = embedding_backend(tmp_path, "BERT", "cls")
    assert (backend.packs, backend._runner.first_token_steps) == (True, None)
    found = np.asarray(backend.run(backend.collate(backend.tokenize(SHORT)), exclusive=False))
    assert np.abs(found - expected_of(tmp_path)).max() <= 1e-5


def test_other_poolings_need_all_tokens(tmp_path: Path) -> None:
    """So do those that leave the tokens of a prompt out. The same transformer with the pooling `cls` does not."""
    architecture = test_architectures.ARCHITECTURES["BERT"]
    transformer = SentenceTransformer(str(test_architectures.build(architecture, tmp_path)))[0]

    def steps(pooling: Pooling) -> Any:  # noqa: ANN401 - functions, or None
        return first_tokens.steps_to_pooling(SentenceTransformer(modules=[transformer, pooling]))

    assert steps(Pooling(32, "cls")) is not None
    others = [Pooling(32, "mean"), Pooling(32, "lasttoken"), Pooling(32, ("cls", "mean"))]
    assert [steps(each) for each in [*others, Pooling(32, "cls", include_prompt=False)]] == [None] * 4


def test_a_reranker_whose_parts_are_those_of_an_embedding_model(tmp_path: Path) -> None:
    """Its pooling takes the first tokens, and its head gets what the pooling returns."""
    architecture = test_architectures.ARCHITECTURES["BERT"]._replace(pooling="cls")
    embedder = SentenceTransformer(str(test_architectures.build(architecture, tmp_path)))
    torch.manual_seed(3)
    head = Dense(32, 1, activation_function=torch.nn.Identity(), module_output_name="scores")
    CrossEncoder(modules=[*embedder, head], num_labels=1).save_pretrained(str(tmp_path / "reranker"))
    backend = load(tmp_path / "reranker")
    assert backend.packs
    found = backend.run(backend.collate(backend.tokenize(SHORT, Options(query="fox"))), SCORE, exclusive=False)
    pairs = [("fox", each) for each in SHORT]
    expected = CrossEncoder(str(tmp_path / "reranker")).predict(pairs, activation_fn=torch.nn.Identity())
    assert np.abs(np.asarray(found).reshape(-1) - np.asarray(expected).reshape(-1)).max() <= 1e-5


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
