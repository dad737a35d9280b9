"""Builds rerankers and classifiers, and saves them as a user's folder is: MiniLM's transformer with a seeded head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder
from transformers import AutoTokenizer, BertForSequenceClassification

from gpuworker.model_spec import parse_model

LABELS = ("negative", "neutral", "positive")
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


def save_as_cross_encoder(folder: Path, source: Path) -> Path:
    """Saves a model with sentence-transformers, which adds modules.json; returns its folder."""
    CrossEncoder(str(source)).save_pretrained(str(folder))
    return folder
