"""Hybrid models: an embedding, weights of tokens and vectors of tokens, from one pass, as BGE-M3 makes them.

FlagEmbedding's BGEM3FlagModel is the reference. The dense part is that of the sentence-transformers model. The other
parts are made of the vector h of each token: sparse is relu(sparse_linear(h)), for each token of the vocabulary the
largest, without special tokens; multi-vector is colbert_linear(h), of length 1, for all tokens but the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

from gpuworker.backends.base import TextParts
from gpuworker.backends.model_loading import fast_tokenizer_of, load_model
from gpuworker.backends.sentence_runner import SentenceRunner, features_of
from gpuworker.backends.sparse_encoder import encode_pairs
from gpuworker.backends.token_heads import TokenHeads, load_heads
from gpuworker.backends.transformer_backend import TransformerBackend
from gpuworker.model_spec import ModelLoadError
from shared.messages import DENSE, MULTI_VECTOR, SPARSE

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers.base.modules.transformer import Transformer
    from transformers import PreTrainedTokenizerFast

    from gpuworker.backends.base import Vector
    from gpuworker.backends.tokenizer import ModelTokenizer
    from gpuworker.ipc.engine_options import EngineOptions
    from gpuworker.model_files import Find
    from gpuworker.model_spec import Model
    from gpuworker.model_type import ModelType


class HybridRunner(SentenceRunner):
    """Collates and runs batches of a hybrid model.

    Attributes:
        heads: the layers that make the parts that are not dense.
        special_ids: the tokens that have no weight.
    """

    heads: TokenHeads
    special_ids: NDArray[np.int64]

    def _pack(self, sequences: list[list[int]]) -> dict[str, Any]:
        features = super()._pack(sequences)
        starts = features["cu_seq_lens_q"].numpy()[features["places"]]
        return {**features, "starts": starts, "sequences": sequences}

    def _pad(self, tokenizer: ModelTokenizer, sequences: list[list[int]]) -> dict[str, Any]:
        features = super()._pad(tokenizer, sequences)
        mask = features["attention_mask"].numpy()
        starts = mask.argmax(axis=1) + np.arange(len(mask)) * mask.shape[1]
        return {**features, "starts": starts[: len(sequences)], "sequences": sequences}

    def run_parts(
        self, batch: Mapping[str, Any], wanted: Sequence[frozenset[str]], *, exclusive: bool, raw: bool
    ) -> list[TextParts]:
        """Returns the parts that are wanted of each text, from one pass. See gpuworker.backends.base.PartsBackend."""
        rows = {part: [i for i, parts in enumerate(wanted) if part in parts] for part in (SPARSE, MULTI_VECTOR, DENSE)}
        layout = _Layout(
            batch["sequences"], batch["starts"].tolist(), {part: each for part, each in rows.items() if each}
        )
        shapes: list[torch.Size] = []

        def compute(inputs: dict[str, Any]) -> torch.Tensor:
            pieces = self._pieces(inputs, layout, raw=raw)
            shapes.extend(each.shape for each in pieces)
            return torch.cat([each.flatten() for each in pieces])  # one copy from the device

        self._use_threads(exclusive=exclusive)
        with torch.inference_mode():
            flat = self.transfer.compute(batch, compute)
        ends = np.cumsum([each.numel() for each in shapes])[:-1]
        arrays = [each.reshape(shape) for each, shape in zip(np.split(flat, ends), shapes, strict=True)]
        outputs = dict(zip(layout.rows, arrays, strict=True))
        return self._texts(layout, outputs, batch.get("places"))

    def _pieces(self, inputs: Mapping[str, Any], layout: _Layout, *, raw: bool) -> list[torch.Tensor]:
        """Returns, for each part of a layout, its numbers for the rows that want it; the dense part is of all rows."""
        features = self.model[0](features_of(inputs))
        hidden = features["token_embeddings"].flatten(0, -2)
        pieces = []
        if SPARSE in layout.rows:
            pieces.append(self.heads.weights_of(torch.cat([hidden[each] for each in layout.spans(SPARSE)])))
        if MULTI_VECTOR in layout.rows:
            pieces.append(self.heads.vectors_of(torch.cat([hidden[each] for each in layout.spans(MULTI_VECTOR)])))
        if DENSE in layout.rows:
            for step in list(self.model)[1:-1] if raw and self._normalizes else list(self.model)[1:]:
                features = step(features)
            pieces.append(features[self.output])
        return pieces

    def _texts(
        self, layout: _Layout, outputs: Mapping[str, Vector], places: NDArray[np.int64] | None
    ) -> list[TextParts]:
        """Returns the parts of each text, of the numbers of a pass."""
        texts = [TextParts() for _ in layout.sequences]
        if SPARSE in outputs:
            for i, weights in layout.divide(SPARSE, outputs[SPARSE]):
                texts[i] = texts[i]._replace(sparse=largest_weights(layout.sequences[i], weights, self.special_ids))
        if MULTI_VECTOR in outputs:
            for i, vectors in layout.divide(MULTI_VECTOR, outputs[MULTI_VECTOR]):
                texts[i] = texts[i]._replace(multi_vector=vectors)
        for i in layout.rows.get(DENSE, ()):
            texts[i] = texts[i]._replace(dense=outputs[DENSE][i if places is None else places[i]])
        return texts


class _Layout(NamedTuple):
    """Where the tokens of each text are in a batch, and which texts want each part.

    Attributes:
        sequences: the tokens of each text.
        starts: the index of the first of these among all tokens of the batch.
        rows: the indices of the texts, by part; in the order of the pieces of a pass.
    """

    sequences: Sequence[list[int]]
    starts: Sequence[int]
    rows: Mapping[str, Sequence[int]]

    def spans(self, part: str) -> list[slice]:
        """Returns the tokens of each text that wants a part: all, or without the first one."""
        skip = int(part == MULTI_VECTOR)
        return [slice(self.starts[i] + skip, self.starts[i] + len(self.sequences[i])) for i in self.rows[part]]

    def divide(self, part: str, numbers: Vector) -> list[tuple[int, Vector]]:
        """Returns the numbers of each text that wants a part, with its index."""
        lengths = [each.stop - each.start for each in self.spans(part)]
        return list(zip(self.rows[part], np.split(numbers, np.cumsum(lengths)[:-1]), strict=True))


def largest_weights(ids: Sequence[int], weights: Vector, special_ids: NDArray[np.int64]) -> bytes:
    """Returns the largest weight of each token, as JSON, without special tokens and those without a weight."""
    tokens, inverse = np.unique(np.asarray(ids, dtype=np.int64), return_inverse=True)
    largest = np.zeros(len(tokens), dtype=np.float32)
    np.maximum.at(largest, inverse, weights)
    has_weight = (largest > 0) & ~np.isin(tokens, special_ids)
    return encode_pairs(tokens[has_weight], largest[has_weight])


class HybridBackend(TransformerBackend):
    """A hybrid model. See TransformerBackend, and gpuworker.backends.base.PartsBackend.

    Args:
        model: its name and place.
        options: of the engine.
        model_type: what its files say of it.
        find: finds its files.

    Raises:
        ModelLoadError: see TransformerBackend; or it has no fast tokenizer, or a layer cannot be loaded.
    """

    runner_class = HybridRunner

    def __init__(self, model: Model, options: EngineOptions, model_type: ModelType, find: Find) -> None:
        self.ops, self.parts, self._find = frozenset(model_type.ops), model_type.parts, find
        super().__init__(model, options)

    def _load(self, model: Model, options: EngineOptions, dtype: torch.dtype) -> SentenceTransformer:
        loaded = load_model(SentenceTransformer, model, options, self.device, dtype)
        tokenizer = fast_tokenizer_of(loaded)
        if tokenizer is None:
            raise ModelLoadError(
                f"model {model.name} cannot be served: its sparse and multi-vector parts need a transformer with a "
                "fast tokenizer (tokenizer.json), and this one has none"
            )
        self._special_ids = _special_ids(tokenizer)
        size = cast("Transformer", loaded[0]).get_embedding_dimension()
        self._heads = load_heads(self._find, size, str(loaded.device))
        if self._find("modules.json") is None:  # as FlagEmbedding does; sentence-transformers takes the mean
            pooling = Pooling(size, pooling_mode="cls")
            loaded = SentenceTransformer(modules=[loaded[0], pooling, Normalize()], device=self.device).eval()
        return loaded

    def _create_runner(self, *arguments: Any) -> SentenceRunner:  # noqa: ANN401 - as in the base class
        runner = super()._create_runner(*arguments)
        assert isinstance(runner, HybridRunner)  # noqa: S101 - it is runner_class
        runner.heads, runner.special_ids = self._heads, self._special_ids
        self._parts_runner = runner
        return runner

    def run_parts(
        self,
        batch: Any,  # noqa: ANN401 - tensors by name
        wanted: Sequence[frozenset[str]],
        *,
        exclusive: bool,
        raw: bool = False,
    ) -> list[TextParts]:
        """Returns the parts that are wanted of each text of a batch, in order."""
        return self._parts_runner.run_parts(batch, wanted, exclusive=exclusive, raw=raw)


def _special_ids(tokenizer: PreTrainedTokenizerFast) -> NDArray[np.int64]:
    """Returns the ids of the tokens that FlagEmbedding gives no weight."""
    ids = (tokenizer.cls_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id)
    return np.array([each for each in ids if each is not None], dtype=np.int64)
