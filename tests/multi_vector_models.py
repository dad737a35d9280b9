"""Builds a multi-vector encoder (ColBERT), and saves it as a user's folder is."""

from __future__ import annotations

from pathlib import Path

import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules.dense import Dense
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sentence_transformer.modules import Normalize

from tests.hybrid_models import SIZE, build_hybrid_model

TOKEN_DIM, QUERY_TOKENS, DOCUMENT_TOKENS = 16, 20, 40
PUNCTUATION = [".", ",", "!", "?"]


def build_multi_vector_encoder(folder: Path) -> Path:
    """Saves a seeded model that fills queries up, and drops the punctuation of documents; returns its folder."""
    build_hybrid_model(folder, heads=())
    torch.manual_seed(13)
    transformer = Transformer(
        str(folder / "transformer"),
        document_length=DOCUMENT_TOKENS,
        query_expansion={"strategy": "fixed", "attend": False, "length": QUERY_TOKENS, "token": "'"},
    )
    layer = Dense(
        SIZE, TOKEN_DIM, bias=False, activation_function=torch.nn.Identity(), module_input_name="token_embeddings"
    )
    mask, normalize = MultiVectorMask(skiplist_words=PUNCTUATION), Normalize(module_input_name="token_embeddings")
    prompts = {"query": "q ", "document": "d ", "title": "t "}
    model = MultiVectorEncoder(modules=[transformer, layer, mask, normalize], prompts=prompts, device="cpu")
    model.save_pretrained(str(folder / "colbert"))
    return folder / "colbert"
