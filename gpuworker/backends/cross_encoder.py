"""Rerankers and classifiers: models whose transformer reads a text, or two texts at once, and returns logits.

sentence-transformers' CrossEncoder loads them. The steps of its `predict` are taken apart, as those of `encode` are for
embeddings, up to the activation: a gateway makes scores of the logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.util import batch_to_device

from gpuworker.backends import first_tokens
from gpuworker.backends.equivalence import largest_difference
from gpuworker.backends.model_loading import load_model
from gpuworker.backends.sentence_runner import SentenceRunner
from gpuworker.backends.transformer_backend import TransformerBackend
from gpuworker.backends.whole_pairs import WholePairs
from gpuworker.model_spec import ModelLoadError
from gpuworker.model_type import MULTI_LABEL, scoring_type
from shared.messages import DEFAULT_OPTIONS, Input, Options
from shared.model_names import numbered_labels

if TYPE_CHECKING:
    from gpuworker.backends.base import Encoded, Vector
    from gpuworker.ipc.engine_options import EngineOptions
    from gpuworker.model_spec import Model
    from gpuworker.model_type import ModelType

PROBE_QUERY = "the lazy dog"


class ScoringRunner(SentenceRunner):
    """Collates and runs batches of a model whose output is logits."""

    output = "scores"
    probe_options = Options(query=PROBE_QUERY)
    difference = staticmethod(largest_difference)

    def prepare_packing(self) -> None:
        """Has the head get the first token of each sequence, unless the pooling of another module does."""
        if not any(isinstance(part, Pooling) for part in self.model):
            first_tokens.give_to_head(self.model.transformers_model)

    def encode(self, texts: Sequence[Any], prompt: str | None = None, *, raw: bool = False) -> Vector:  # noqa: ARG002 - the logits are raw
        """Returns the logits of pairs, by the steps of `predict`; a text is a pair with the probe query."""
        with torch.inference_mode():
            pairs = [each if isinstance(each, tuple) else (PROBE_QUERY, each) for each in texts]
            features = batch_to_device(self.model.preprocess(pairs, prompt=prompt), self.model.device)
            logits: Vector = self.model(features)[self.output].float().cpu().numpy()
        return logits


class CrossEncoderBackend(TransformerBackend):
    """A reranker or a classifier. Its outputs are logits, of shape (labels,) for each input.

    A language model reads a pair through its template for chats, which sentence-transformers applies: it gets whole
    pairs, one batch at a time. So does a model whose tokenizer is not a fast one.

    Args:
        model: its name and place.
        options: of the engine.
        model_type: what its files say of it.

    Raises:
        ModelLoadError: see TransformerBackend; or the options name another runtime than torch.
    """

    runner_class = ScoringRunner
    cpu_batch_tokens = 1_024
    """512 tokens hold two or three pairs of usual length, and a fifth of such a batch stays empty."""

    def __init__(self, model: Model, options: EngineOptions, model_type: ModelType) -> None:
        if options.backend != "torch":
            raise ModelLoadError(
                f"--backend {options.backend} runs models of embeddings, and {model.name} is a {model_type.name}: use "
                "--backend torch"
            )
        self._type = model_type
        super().__init__(model, options)
        if self._tokenizer is None:
            self.max_input_tokens = self._whole_pairs.max_tokens or 0

    def _load(self, model: Model, options: EngineOptions, dtype: torch.dtype) -> CrossEncoder:
        loaded: CrossEncoder = load_model(CrossEncoder, model, options, self.device, dtype)
        found = self._type
        if len(found.labels) != loaded.num_labels:  # its head is another module, which config.json does not describe
            names = numbered_labels(loaded.num_labels)
            found = scoring_type(names, is_multi_label=getattr(loaded.config, "problem_type", "") == MULTI_LABEL)
        self.ops, self.labels, self.activation = frozenset(found.ops), found.labels, found.activation
        self._whole_pairs = WholePairs(loaded)
        return loaded

    def tokenize(self, inputs: Sequence[Input], options: Options = DEFAULT_OPTIONS) -> Sequence[Encoded]:
        """Returns token ids with the model's special tokens, cut to its maximum length; or whole pairs.

        Raises:
            InputRefusedError: see gpuworker.backends.base; or a model of whole pairs cannot do this.
        """
        return self._whole_pairs.read(inputs, options) if self._tokenizer is None else super().tokenize(inputs, options)
