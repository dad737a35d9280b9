"""Builds a sparse encoder, and saves it as a user's folder is: MiniLM's transformer with a seeded SPLADE head."""

from __future__ import annotations

from pathlib import Path

import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sparse_encoder.modules import SpladePooling
from transformers import AutoTokenizer, BertForMaskedLM

from gpuworker.model_spec import parse_model

BIAS = -4.0
"""Of each token's logit: without it half of the vocabulary would have a weight, and not a few hundred tokens."""


def build_sparse_encoder(folder: Path) -> Path:
    """Saves the model with sentence-transformers; returns its folder."""
    torch.manual_seed(7)
    path = parse_model("minilm").path
    model = BertForMaskedLM.from_pretrained(path)
    with torch.no_grad():
        model.cls.predictions.bias.add_(BIAS)
    transformer = folder / "transformer"
    model.save_pretrained(transformer)
    AutoTokenizer.from_pretrained(path).save_pretrained(transformer)
    modules = [Transformer(str(transformer), transformer_task="fill-mask"), SpladePooling()]
    encoder = SparseEncoder(modules=modules, prompts={"query": "query: "}, device="cpu")
    encoder.save_pretrained(str(folder / "splade"))
    return folder / "splade"
