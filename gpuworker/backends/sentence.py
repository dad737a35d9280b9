"""Any sentence-transformers model, through torch.

The usual text model is a transformer behind a fast tokenizer. For that one the steps of `SentenceTransformer.encode`
are taken apart, so that texts are tokenized before the device is free and batches are planned by their true length.
Any other model is given whole texts, and `encode` itself does the work.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.transformer import Transformer
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from gpuworker.models import Model, ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CPU_BATCH_TOKENS = 1_024
GPU_BATCH_TOKENS = 16_384
CHARS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Tokenized:
    """An input as token ids."""

    ids: list[int]

    @property
    def tokens(self) -> int:
        """Its length."""
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Whole:
    """An input as text, its length in tokens a guess."""

    text: str

    @property
    def tokens(self) -> int:
        """About its length: English text has some four characters a token."""
        return max(1, len(self.text) // CHARS_PER_TOKEN)


class SentenceBackend:
    """A sentence-transformers model on one device, in float32.

    Raises:
        ModelError: the model is not there, or is none.
    """

    def __init__(self, model: Model, device: str) -> None:
        transformers_logging.disable_progress_bar()
        logging.getLogger("sentence_transformers").setLevel(logging.WARNING)  # the worker says what it loads
        try:
            self._model = SentenceTransformer(
                model.path,
                device=None if device == "auto" else device,
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True},
            )
        except Exception as error:  # the libraries raise whatever they meet: OSError, ValueError, RuntimeError, ...
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise ModelError(f"model {model.name} cannot be loaded: {reason}") from error
        self._model.eval()
        self.device = str(self._model.device)
        self.dim = len(self._encode(["dimension"])[0])
        self.max_batch_tokens = CPU_BATCH_TOKENS if self.device == "cpu" else GPU_BATCH_TOKENS
        self._tokenizer = self._fast_tokenizer()
        self._prompt = self._model.prompts.get(self._model.default_prompt_name or "", "") or ""

    def _fast_tokenizer(self) -> PreTrainedTokenizerFast | None:
        first = self._model[0]
        plain = isinstance(first, Transformer) and "message" not in first.modality_config
        tokenizer = getattr(first, "processor", None)
        if not plain or not isinstance(tokenizer, PreTrainedTokenizerFast):
            return None
        if tokenizer.pad_token_id is None or any(not getattr(module, "include_prompt", True) for module in self._model):
            return None
        return tokenizer

    def tokenize(self, texts: Sequence[str]) -> Sequence[Tokenized | Whole]:
        """Returns token ids with the model's special tokens, cut to its longest sequence."""
        if self._tokenizer is None:
            return [Whole(text) for text in texts]
        encoded = self._tokenizer(
            [self._prompt + text for text in texts],
            truncation="longest_first",
            return_attention_mask=False,
            return_token_type_ids=False,
        )
        return [Tokenized(ids) for ids in encoded["input_ids"]]

    def collate(self, inputs: Sequence[Any]) -> Any:  # noqa: ANN401 - tensors by name, or texts
        """Returns padded tensors on the device, or the texts."""
        if self._tokenizer is None:
            return [each.text for each in inputs]
        padded = self._tokenizer.pad({"input_ids": [each.ids for each in inputs]}, padding=True, return_tensors="pt")
        features = dict(padded)
        if "token_type_ids" in self._tokenizer.model_input_names:
            features["token_type_ids"] = torch.zeros_like(features["input_ids"])
        return {name: tensor.to(self._model.device) for name, tensor in features.items()}

    def run(self, batch: Any) -> NDArray[np.float32]:  # noqa: ANN401
        """Returns what `encode` returns for these texts."""
        if self._tokenizer is None:
            return self._encode(batch)
        with torch.inference_mode():
            out = self._model({**batch, "modality": "text"})
            vectors: NDArray[np.float32] = out["sentence_embedding"].float().cpu().numpy()
        return vectors

    def warmup(self) -> None:
        """Runs one short and one longer batch: the first ones allocate memory and choose kernels."""
        words = "the quick brown fox jumps over the lazy dog "
        for repeats, number in ((1, 1), (3, 8)):
            self.run(self.collate(self.tokenize([words * repeats] * number)))

    def _encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = self._model.encode(
            list(texts), batch_size=len(texts), show_progress_bar=False, convert_to_numpy=True
        )
        return vectors.astype("float32", copy=False)
