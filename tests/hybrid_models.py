"""Builds hybrid models, and saves them as a user's folder is: a small XLM-R with the two layers of BGE-M3."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaModel

SIZE, TOKEN_DIM, MAX_TOKENS = 32, 24, 64
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,!?'-"
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")


def build_hybrid_model(folder: Path, heads: Sequence[str] = ("sparse_linear", "colbert_linear")) -> Path:
    """Saves a seeded model with these layers, as torch.save writes them; returns its folder."""
    torch.manual_seed(11)
    tokenizer = _tokenizer()
    config = XLMRobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=SIZE,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=MAX_TOKENS + 2,
        type_vocab_size=1,
        initializer_range=0.5,
    )
    XLMRobertaModel(config).save_pretrained(folder / "transformer")
    tokenizer.save_pretrained(folder / "transformer")
    modules = [Transformer(str(folder / "transformer")), Pooling(SIZE, pooling_mode="cls"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(folder / "hybrid"))
    for name in heads:
        layer = torch.nn.Linear(SIZE, 1 if name == "sparse_linear" else TOKEN_DIM)
        torch.save(layer.state_dict(), folder / "hybrid" / f"{name}.pt")
    return folder / "hybrid"


def _tokenizer() -> PreTrainedTokenizerFast:
    """Returns a tokenizer of letters, with the special tokens of XLM-R: a text often has a token several times."""
    vocabulary = {each: index for index, each in enumerate([*SPECIAL, *LETTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split("", "isolated")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, cls_token="<s>", sep_token="</s>", model_max_length=MAX_TOKENS, **names
    )


def reference(folder: Path, text: str) -> dict[str, Any]:
    """Returns what FlagEmbedding's BGEM3FlagModel returns of a text, by its definition, with torch alone.

    `dense` is of shape (size,), `sparse` a weight by token, and `multi_vector` of shape (tokens - 1, TOKEN_DIM).
    """
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    model = XLMRobertaModel.from_pretrained(folder).eval()
    inputs = tokenizer(text, truncation=True, max_length=MAX_TOKENS, return_tensors="pt")
    with torch.no_grad():
        hidden: torch.Tensor = model(**inputs).last_hidden_state[0]
        parts: dict[str, Any] = {"dense": (hidden[0] / hidden[0].norm()).numpy()}
        if (folder / "sparse_linear.pt").exists():
            layer = torch.load(folder / "sparse_linear.pt", weights_only=True)
            weights = torch.relu(hidden @ layer["weight"].T + layer["bias"])[:, 0].tolist()
            parts["sparse"] = _largest(inputs["input_ids"][0].tolist(), weights)
        if (folder / "colbert_linear.pt").exists():
            layer = torch.load(folder / "colbert_linear.pt", weights_only=True)
            vectors = hidden[1:] @ layer["weight"].T + layer["bias"]
            parts["multi_vector"] = (vectors / vectors.norm(dim=-1, keepdim=True)).numpy()
    return parts


def _largest(ids: Sequence[int], weights: Sequence[float]) -> dict[int, float]:
    found: dict[int, float] = {}
    for token, weight in zip(ids, weights, strict=True):
        if token >= len(SPECIAL) and weight > found.get(token, 0.0):
            found[token] = weight
    return found


def assert_parts(found: dict[str, Any], expected: dict[str, Any], named: Sequence[str]) -> None:
    """Checks that parts of a text, as an answer has them, are exactly those named, each within 1e-5."""
    assert set(found) == set(named)
    for name in named:
        if name == "sparse":
            weights = {each["index"]: each["value"] for each in found[name]}
            assert list(weights) == sorted(expected[name])
            assert all(abs(weights[token] - value) <= 1e-5 for token, value in expected[name].items())
        else:
            vectors = np.asarray(found[name], dtype=np.float32)
            assert vectors.shape == expected[name].shape
            assert np.abs(vectors - expected[name]).max(initial=0) <= 1e-5
