"""Sparse encoders (SPLADE): models that give each text a weight for some tokens of the vocabulary.

sentence-transformers' SparseEncoder loads them, and its `encode` is the reference: of the logits x of a masked language
model for each token, log(1 + max(0, x)), and the largest of these over the tokens of a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from sentence_transformers import SparseEncoder

from gpuworker.backends.equivalence import largest_difference
from gpuworker.backends.model_loading import fast_tokenizer_of, load_model
from gpuworker.backends.sentence_runner import SentenceRunner
from gpuworker.backends.transformer_backend import TransformerBackend
from gpuworker.model_spec import ModelLoadError
from shared.messages import EMBED, EMBED_SPARSE, SPARSE_OPS

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from gpuworker.backends.base import Vector
    from gpuworker.ipc.engine_options import EngineOptions
    from gpuworker.model_spec import Model


class SparseRunner(SentenceRunner):
    """Collates and runs batches of a sparse encoder; a batch's vectors are dense, of shape (texts, vocabulary)."""

    model: SparseEncoder
    difference = staticmethod(largest_difference)

    def encode(self, texts: Sequence[str], prompt: str | None = None, *, raw: bool = False) -> Vector:  # noqa: ARG002 - there is no normalization
        """Returns what the model's `encode` returns for these texts, as a dense array of float32."""
        weights = self.model.encode(
            list(texts),
            prompt=prompt,
            batch_size=len(texts),
            show_progress_bar=False,
            convert_to_tensor=True,
            convert_to_sparse_tensor=False,
        )
        vectors: Vector = weights.float().cpu().numpy()
        return vectors


class SparseEncoderBackend(TransformerBackend):
    """A sparse encoder. Its outputs are JSON: for each input `[{"index", "value"}, ...]`, in the order of the indices.

    Raises:
        ModelLoadError: see TransformerBackend; or it has no fast tokenizer.
    """

    ops = frozenset(SPARSE_OPS)
    runner_class = SparseRunner

    def __init__(self, model: Model, options: EngineOptions) -> None:
        if options.backend != "torch":
            raise ModelLoadError(
                f"--backend {options.backend} runs models of embeddings, and {model.name} is a sparse encoder: use "
                "--backend torch"
            )
        super().__init__(model, options)
        self.dim = 0  # its outputs are no vectors of numbers

    def _load(self, model: Model, options: EngineOptions, dtype: torch.dtype) -> SparseEncoder:
        loaded = load_model(SparseEncoder, model, options, self.device, dtype)
        if fast_tokenizer_of(loaded) is None:
            raise ModelLoadError(
                f"model {model.name} cannot be served: a sparse encoder needs a transformer with a fast tokenizer "
                "(tokenizer.json), and this one has none"
            )
        return loaded

    def run(self, batch: Any, op: str = EMBED, *, exclusive: bool, raw: bool = False) -> Any:  # noqa: ANN401 - vectors or JSON
        """Returns the weights of a batch as JSON. Raises InputRefusedError: see gpuworker.backends.base."""
        vectors = super().run(batch, EMBED, exclusive=exclusive, raw=raw)
        return [encode_weights(each) for each in vectors] if op == EMBED_SPARSE else vectors


def encode_weights(vector: Vector) -> bytes:
    """Returns the numbers of a vector that are not 0, and their places, as JSON."""
    (indices,) = np.nonzero(vector)
    return encode_pairs(indices, vector[indices])


def encode_pairs(indices: NDArray[np.int64], values: Vector) -> bytes:
    """Returns tokens of the vocabulary and their weights as JSON."""
    weights = [{"index": i, "value": value} for i, value in zip(indices.tolist(), values, strict=True)]
    return orjson.dumps(weights, option=orjson.OPT_SERIALIZE_NUMPY)
