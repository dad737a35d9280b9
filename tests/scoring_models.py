"""Builds rerankers and classifiers, and saves them as a user's folder is: MiniLM's transformer with a seeded head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from bench.scoring_model import build_scoring_model
from gpuworker.model_spec import parse_model

__all__ = ["LABELS", "build_language_model_reranker", "build_scoring_model", "save_as_cross_encoder"]

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
