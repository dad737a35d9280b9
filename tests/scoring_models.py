"""Builds rerankers and classifiers, and saves them as a user's folder is: MiniLM's transformer with a seeded head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder
from transformers import AutoTokenizer, BertForSequenceClassification, Qwen3Config, Qwen3ForCausalLM

from gpuworker.model_spec import parse_model

LABELS = ("negative", "neutral", "positive")
LANGUAGE_MODEL: dict[str, Any] = {
    "vocab_size": 30_522,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 64,
    "initializer_range": 0.5,
}
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }} "
    "{% elif m.role == 'query' %}query: {{ m.content }} "
    "{% elif m.role == 'document' %}document: {{ m.content }} {% endif %}{% endfor %}yes or no:"
)

HEAD_SCALE = 20.0
"""With its initial weights, a head returns nearly the same logits for all texts."""


def build_scoring_model(folder: Path, labels: tuple[str, ...] = ("LABEL_0",), **config: Any) -> Path:  # noqa: ANN401
    """Saves a model whose head has these labels, with Transformers; returns its folder."""
    torch.manual_seed(5)
    names = dict(enumerate(labels))
    path = parse_model("minilm").path
    model = BertForSequenceClassification.from_pretrained(
        path, num_labels=len(labels), id2label=names, label2id={name: i for i, name in names.items()}, **config
    )
    with torch.no_grad():
        model.classifier.weight *= HEAD_SCALE
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(path).save_pretrained(folder)
    return folder


def build_language_model_reranker(folder: Path, template: str = TEMPLATE) -> Path:
    """Saves a small language model with a template for a query and a document; returns its folder."""
    torch.manual_seed(3)
    config = Qwen3Config(**LANGUAGE_MODEL)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(parse_model("minilm").path)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    return folder


def save_as_cross_encoder(folder: Path, source: Path) -> Path:
    """Saves a model with sentence-transformers, which adds modules.json; returns its folder."""
    CrossEncoder(str(source)).save_pretrained(str(folder))
    return folder
