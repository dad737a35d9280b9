"""Any sentence-transformers model that makes embeddings, through torch or another runtime.

The usual text model is a transformer with a fast tokenizer. For such a model the steps of `SentenceTransformer.encode`
are taken apart, so that texts are tokenized before the device is free, and batches are planned by their true length.
Any other model gets whole texts, and `encode` itself does the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sentence_transformers import SentenceTransformer

from gpuworker.backends.base import TEXT_OPS
from gpuworker.backends.model_loading import load_model
from gpuworker.backends.transformer_backend import TransformerBackend
from gpuworker.backends.whole_texts import WholeTexts
from shared.messages import DEFAULT_OPTIONS, EMBED_ALL, Input, Options

if TYPE_CHECKING:
    import torch

    from gpuworker.backends.base import Encoded
    from gpuworker.ipc.engine_options import EngineOptions
    from gpuworker.model_spec import Model


class SentenceBackend(TransformerBackend):
    """A model that makes embeddings. See TransformerBackend."""

    ops = TEXT_OPS

    def _load(self, model: Model, options: EngineOptions, dtype: torch.dtype) -> SentenceTransformer:
        loaded = load_model(SentenceTransformer, model, options, self.device, dtype)
        self._whole_texts = WholeTexts(loaded)
        return loaded

    def _describe(self, *arguments: Any) -> None:  # noqa: ANN401 - as in the base class
        super()._describe(*arguments)
        if self._tokenizer is None:  # `encode` returns no vectors of tokens
            self.ops -= {EMBED_ALL}

    def tokenize(self, inputs: Sequence[Input], options: Options = DEFAULT_OPTIONS) -> Sequence[Encoded]:
        """Returns token ids with the model's special tokens, cut to its maximum length; or whole texts.

        Raises:
            InputRefusedError: see gpuworker.backends.base.
        """
        return self._whole_texts.read(inputs, options) if self._tokenizer is None else super().tokenize(inputs, options)
