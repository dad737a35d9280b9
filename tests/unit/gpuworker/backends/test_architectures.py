"""The architectures of docs/models.md: each runs as the page says, with the vectors of `encode`."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from transformers import (
    BertConfig,
    BertModel,
    CamembertConfig,
    CamembertModel,
    DistilBertConfig,
    DistilBertModel,
    ElectraConfig,
    ElectraModel,
    ModernBertConfig,
    ModernBertModel,
    MPNetConfig,
    MPNetModel,
    Qwen3Config,
    Qwen3Model,
    RobertaConfig,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from gpuworker.backends.sentence import SentenceBackend
from gpuworker.model_spec import parse_model
from shared.messages import EMBED, EMBED_ALL
from tests.unit.gpuworker.backends.options import OPTIONS

pytestmark = pytest.mark.model

PAGE = Path(__file__).parents[4] / "docs" / "models.md"
TEXTS = [
    "hello",
    "A longer text, of more words than the first one has.",
    "Ünïcödé 漢字",
    "x " * 700,
    "two words",
    "hello",
]
DIM = 32
SIZES: dict[str, Any] = {"hidden_size": DIM, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


class Architecture(NamedTuple):
    """How to build a small model with seeded weights, and how it is to run."""

    configuration: Callable[..., Any]
    model: type[Any]
    pooling: str
    runs: str


ARCHITECTURES = {
    "BERT": Architecture(partial(BertConfig, **SIZES), BertModel, "mean", "packed"),
    "ELECTRA": Architecture(partial(ElectraConfig, embedding_size=DIM, **SIZES), ElectraModel, "cls", "packed"),
    "RoBERTa": Architecture(partial(RobertaConfig, **SIZES), RobertaModel, "mean", "packed"),
    "CamemBERT": Architecture(partial(CamembertConfig, **SIZES), CamembertModel, "cls", "packed"),
    "XLM-RoBERTa": Architecture(partial(XLMRobertaConfig, **SIZES), XLMRobertaModel, "cls", "packed"),
    "DistilBERT": Architecture(
        partial(DistilBertConfig, dim=DIM, n_layers=2, n_heads=4, hidden_dim=64), DistilBertModel, "mean", "packed"
    ),
    "MPNet": Architecture(partial(MPNetConfig, **SIZES), MPNetModel, "mean", "padded"),
    "ModernBERT": Architecture(partial(ModernBertConfig, pad_token_id=0, **SIZES), ModernBertModel, "mean", "padded"),
    "Qwen3": Architecture(
        partial(Qwen3Config, num_key_value_heads=2, head_dim=8, **SIZES), Qwen3Model, "lasttoken", "padded"
    ),
}


def build(architecture: Architecture, folder: Path) -> Path:
    """Saves a model with seeded weights and MiniLM's tokenizer; returns its folder."""
    torch.manual_seed(3)
    model = architecture.model(architecture.configuration(vocab_size=30_522, max_position_embeddings=140))
    model.save_pretrained(folder / "transformer")
    SentenceTransformer(parse_model("minilm").path).tokenizer.save_pretrained(folder / "transformer")
    transformer = Transformer(str(folder / "transformer"), max_seq_length=128)
    SentenceTransformer(modules=[transformer, Pooling(DIM, architecture.pooling)]).save(str(folder / "whole"))
    return folder / "whole"


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture_runs_as_the_page_says(tmp_path: Path, name: str) -> None:
    """Texts of different lengths in one batch, in any order, each get the vector of `encode`."""
    architecture = ARCHITECTURES[name]
    folder = build(architecture, tmp_path)
    backend = SentenceBackend(parse_model(str(folder)), OPTIONS)
    assert backend.packs is (architecture.runs == "packed")
    expected = SentenceTransformer(str(folder)).encode(TEXTS)
    tokenized = backend.tokenize(TEXTS)
    found = backend.run(backend.collate(tokenized), exclusive=False)
    assert np.abs(found - expected).max() <= 1e-5
    assert (backend.pooling, backend.dtype, backend.max_input_tokens) == (architecture.pooling, "float32", 128)
    if architecture.pooling != "lasttoken":
        each_token = backend.run(backend.collate(tokenized), EMBED_ALL, exclusive=False)
        assert [each.shape for each in each_token] == [(one.tokens, DIM) for one in tokenized]
        pooled = [each[0] if architecture.pooling == "cls" else each.mean(axis=0) for each in each_token]
        assert np.abs(np.asarray(pooled) - expected).max() <= 1e-5


def test_a_static_embedding_runs_as_the_page_says(tmp_path: Path) -> None:
    """It has no transformer: `encode` runs it."""
    words = SentenceTransformer(parse_model("minilm").path).tokenizer.backend_tokenizer
    SentenceTransformer(modules=[StaticEmbedding(words, embedding_dim=DIM)]).save(str(tmp_path))
    backend = SentenceBackend(parse_model(str(tmp_path)), OPTIONS)
    found = backend.run(backend.collate(backend.tokenize(TEXTS)), exclusive=True)
    assert np.abs(found - SentenceTransformer(str(tmp_path)).encode(TEXTS)).max() <= 1e-5
    assert (backend.packs, backend.runners, backend.ops) == (False, 1, frozenset({EMBED}))


def test_the_page_lists_what_is_tested() -> None:
    """Its table has each architecture of this module, with how it runs and its pooling, and no other."""
    rows = re.findall(
        r"^\| ([^|]+?) \| (packed|padded|encode) \| (\w+|–) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    tested = [(name, each.runs, each.pooling) for name, each in ARCHITECTURES.items()]
    assert rows == [*tested, ("static embeddings", "encode", "–")]
