"""Collates and runs batches of a sentence-transformers model, in the way that acceleration has chosen for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from gpuworker.backends import buckets, packing
from gpuworker.backends.base import UnsupportedError
from gpuworker.backends.equivalence import distance
from gpuworker.backends.transfer import create_transfer
from shared.messages import DEFAULT_OPTIONS, EMBED, EMBED_ALL

if TYPE_CHECKING:
    from sentence_transformers.base.model import BaseModel

    from gpuworker.backends.base import Vector
    from gpuworker.backends.first_tokens import Step
    from gpuworker.backends.tokenizer import ModelTokenizer, TokenizedInput
    from gpuworker.backends.whole_texts import WholeText


HOST_FEATURES = ("places", "starts", "sequences")
"""What `collate` adds for `run` to read; it is not for the model."""


class SentenceRunner:
    """A model's batches on one device.

    Args:
        model: the loaded model.
        tokenizer: of the model; None if texts can only be given to `encode`.
        normalizes: whether the model's last step normalizes its vectors.
        threads: of torch, for a batch that has the whole device (True), and for one that shares it (False).
        bucket_tokens: maximum tokens of a text, where batches are padded to few shapes; None where they are not.
        max_tokens: of a batch; one with a single text may have more than its limit.

    Attributes:
        model: the loaded model.
        tokenizer: of the model.
        device: where it runs, as torch names it.
        threads: as above.
        max_tokens: as above.
        first_position: the position of a sequence's first token, in packed batches.
        packs: whether batches are packed, so that they hold no padding.
        first_token_steps: how packed batches run if the pooling reads only first tokens (see first_tokens); else None.
        transfer: moves tensors to and from the device.
        output: the feature that the last part of the model adds, which `run` returns.
        probe_options: how the probe texts are read that show whether the model can run in another way.
        difference: how far two outputs are apart.
    """

    output = "sentence_embedding"
    probe_options = DEFAULT_OPTIONS
    difference = staticmethod(distance)

    def __init__(
        self,
        model: BaseModel,
        tokenizer: ModelTokenizer | None,
        *,
        normalizes: bool,
        threads: Mapping[bool, int],
        bucket_tokens: int | None,
        max_tokens: int,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.device = str(model.device)
        self.threads = threads
        self.max_tokens = max_tokens
        self.first_position = 0
        self.packs = False
        self.first_token_steps: Sequence[Step] | None = None
        self.transfer = create_transfer(self.device)
        self._normalizes = normalizes
        self._bucket_tokens = bucket_tokens

    def prepare_packing(self) -> None:
        """Changes the model so that it can run packed batches; called once, before these are tried."""

    def encode(self, texts: Sequence[str], prompt: str | None = None, *, raw: bool = False) -> Vector:
        """Returns what the model's `encode` returns for these texts, as float32; `raw` without its normalization."""
        model = self._unnormalized if raw and self._normalizes else cast("SentenceTransformer", self.model)
        vectors: Vector = model.encode(
            list(texts), prompt=prompt, batch_size=len(texts), show_progress_bar=False, convert_to_numpy=True
        )
        return vectors.astype("float32", copy=False)

    @cached_property
    def _unnormalized(self) -> SentenceTransformer:
        """The model without its last step; it shares the weights."""
        return SentenceTransformer(modules=list(self.model)[:-1], device=self.device)

    def collate(self, inputs: Sequence[Any]) -> Any:  # noqa: ANN401 - tensors by name, or texts
        """Returns padded or packed tensors on the device; the texts where there is no tokenizer."""
        if self.tokenizer is None:
            return inputs
        sequences = [each.ids for each in inputs]
        features = self._pack(sequences) if self.packs else self._pad(self.tokenizer, sequences)
        if "token_type_ids" in self.tokenizer.input_names:
            features["token_type_ids"] = self._token_types(features, inputs)
        return self.transfer.to_device(features)

    def _token_types(self, features: dict[str, Any], inputs: Sequence[TokenizedInput]) -> torch.Tensor:
        """Returns the type of each token, in the shape of the ids: 0 for single texts."""
        types = torch.zeros_like(features["input_ids"])
        if not any(each.type_ids for each in inputs):
            return types
        ordered = sorted(inputs, key=lambda each: each.tokens) if self.packs else inputs
        flat = [number for each in ordered for number in each.type_ids or [0] * each.tokens]
        if self.packs:
            types[0] = torch.tensor(flat)
        else:
            is_token = features["attention_mask"][: len(inputs)].bool()
            types[: len(inputs)][is_token] = torch.tensor(flat)
        return types

    def _pack(self, sequences: list[list[int]]) -> dict[str, Any]:
        order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
        features = packing.pack([sequences[i] for i in order], self.first_position)
        return {**features, "places": np.argsort(order)}

    def _pad(self, tokenizer: ModelTokenizer, sequences: list[list[int]]) -> dict[str, Any]:
        number = len(sequences)
        if self._bucket_tokens is None:
            return tokenizer.pad(sequences)
        texts, tokens = buckets.shape_of(number, max(map(len, sequences)), self._bucket_tokens)
        filled = sequences + [sequences[-1]] * (texts - number)  # the last one again: no row may be empty
        return {**tokenizer.pad(filled, tokens), "places": np.arange(number)}

    def run(
        self,
        batch: Any,  # noqa: ANN401 - what `collate` returns
        op: str = EMBED,
        *,
        exclusive: bool,
        raw: bool = False,
    ) -> Vector | list[Vector]:
        """Returns the vectors of a batch. See gpuworker.backends.base.Backend.

        Raises:
            InputRefusedError: this model has no vectors of tokens.
        """
        if op == EMBED_ALL:
            return self._run_each_token(batch, exclusive=exclusive)
        if self.tokenizer is None:
            self._use_threads(exclusive=exclusive)
            return self._encode_whole(batch, raw=raw)
        is_cut = raw and self._normalizes
        steps = self.first_token_steps or (list(self.model) if is_cut else [self.model])
        steps = steps[:-1] if is_cut else steps
        vectors = self._compute(batch, steps, self.output, exclusive=exclusive)
        places = batch.get("places")
        return vectors if places is None else vectors[places]

    def _encode_whole(self, batch: Sequence[WholeText], *, raw: bool) -> Vector:
        """Returns the vectors of texts. `encode` takes one prompt for all, which some models leave out of the mean."""
        places: dict[str, list[int]] = {}
        for place, each in enumerate(batch):
            places.setdefault(each.prompt, []).append(place)
        vectors = [self.encode([batch[i].text for i in own], prompt, raw=raw) for prompt, own in places.items()]
        if len(vectors) == 1:
            return vectors[0]
        return np.concatenate(vectors)[np.argsort([i for own in places.values() for i in own])]

    def _run_each_token(self, batch: Any, *, exclusive: bool) -> list[Vector]:  # noqa: ANN401 - what `collate` returns
        """Returns the transformer's output for each token, special tokens included."""
        if self.tokenizer is None:
            raise UnsupportedError("This model has no vectors of tokens.")
        outputs = self._compute(batch, [self.model[0]], "token_embeddings", exclusive=exclusive)
        if "cu_seq_lens_q" in batch:
            rows = np.split(outputs[0], batch["cu_seq_lens_q"].tolist()[1:-1])
        else:
            mask = batch["attention_mask"].bool().cpu().numpy()
            rows = [vectors[is_token] for vectors, is_token in zip(outputs, mask, strict=True)]
        return rows if "places" not in batch else [rows[place] for place in batch["places"]]

    def _compute(self, batch: Mapping[str, Any], steps: Sequence[Step], name: str, *, exclusive: bool) -> Vector:
        """Returns the feature of this name, after these steps, one after the other, ran on a batch."""

        def compute(inputs: dict[str, Any]) -> torch.Tensor:
            features = features_of(inputs)
            for step in steps:
                features = step(features)
            feature: torch.Tensor = features[name]
            return feature

        self._use_threads(exclusive=exclusive)
        with torch.inference_mode():
            return self.transfer.compute(batch, compute)

    def _use_threads(self, *, exclusive: bool) -> None:
        if self.device == "cpu":
            torch.set_num_threads(self.threads[exclusive])


def features_of(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the first part of a model reads of a collated batch."""
    return {name: value for name, value in inputs.items() if name not in HOST_FEATURES} | {"modality": "text"}
