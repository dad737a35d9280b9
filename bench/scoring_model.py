"""Builds rerankers and classifiers of MiniLM's transformer: `python -m bench.scoring_model FOLDER`. Imports torch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, BertForSequenceClassification

from gpuworker.model_spec import parse_model

SEED = 5
HEAD_SCALE = 20.0
"""With its initial weights, a head returns nearly the same logits for all texts."""


def build_scoring_model(folder: Path, labels: tuple[str, ...] = ("LABEL_0",), **config: Any) -> Path:  # noqa: ANN401
    """Saves a model with a seeded head that has these labels, as a user's folder is; returns the folder."""
    torch.manual_seed(SEED)
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


if __name__ == "__main__":
    build_scoring_model(Path(sys.argv[1]))
