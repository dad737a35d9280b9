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

import numpy as np
import sentence_transformers
import structlog
import torch
from joblib import cpu_count
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from sentence_transformers.util import get_device_name
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from gpuworker.backends import packing, prepacking
from gpuworker.backends.base import OF_TEXTS, InputRefused, Token
from gpuworker.backends.reading import Reader, Tokenized
from gpuworker.backends.revision import revision_of
from gpuworker.models import Model, ModelError
from shared.messages import EMBED, EMBED_ALL, PLAIN, Input, Options

if TYPE_CHECKING:
    from gpuworker.backends.base import Vector
    from gpuworker.engine_options import EngineOptions

log = structlog.get_logger()

CPU_BATCH_TOKENS = 512
GPU_BATCH_TOKENS = 16_384
MOST_RUNNERS = 8
"""Each runner needs Python for a millisecond or two of a batch's 80: beyond this they would wait for each other."""

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
CHARS_PER_TOKEN = 4

PROBE = ["a", "two words", "the quick brown fox jumps over the lazy dog", "one two three four five " * 9, "b"]
PROBE_TOLERANCE = 1e-5
"""A model is served without padding if the vectors of these texts differ by no more than float32 does anyway."""


@dataclass(frozen=True, slots=True)
class Whole:
    """An input as text, its length in tokens a guess."""

    text: str

    @property
    def tokens(self) -> int:
        """About its length: English text has some four characters a token."""
        return max(1, len(self.text) // CHARS_PER_TOKEN)


class SentenceBackend:
    """A sentence-transformers model on one device.

    On a CPU several batches run at once, each on its share of the cores: threads that work on one batch wait for each
    other at each of its hundred operations, and for whichever of them was put aside for another process.

    Raises:
        ModelError: the model is not there, or is none.
    """

    def __init__(self, model: Model, options: EngineOptions) -> None:
        torch.set_num_threads(1)  # of this thread: it loads and warms up, and needs no helpers that outlive that
        transformers_logging.disable_progress_bar()
        logging.getLogger("sentence_transformers").setLevel(logging.WARNING)  # the worker says what it loads
        device = get_device_name() if options.device == "auto" else options.device
        on_cpu = device == "cpu"
        dtype = dtype_of(options.dtype, device)
        # A CPU begins with float32, in which a model shows whether it can run without padding.
        loaded = torch.float32 if on_cpu else dtype
        try:
            self._model = SentenceTransformer(
                model.path,
                device=device,
                revision=options.model_revision,
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True, "dtype": loaded},
            )
        except Exception as error:  # the libraries raise whatever they meet: OSError, ValueError, RuntimeError, ...
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise ModelError(f"model {model.name} cannot be loaded: {reason}") from error
        self._model.eval()
        self.ops = OF_TEXTS
        self.device = str(self._model.device)
        self._cores = options.cores or cpu_count()
        self.runners = options.runners or (min(self._cores, MOST_RUNNERS) if on_cpu else 1)
        self._threads = {True: self._cores, False: max(1, self._cores // self.runners)}
        self.ahead = not on_cpu
        self.max_batch_tokens = CPU_BATCH_TOKENS if on_cpu else GPU_BATCH_TOKENS
        self._tokenizer = self._fast_tokenizer()
        self._tokenizer_inputs = [] if self._tokenizer is None else self._tokenizer.model_input_names
        self._reader = None if self._tokenizer is None else Reader(self._tokenizer, self._model)
        self.normalizes = _normalizes(self._model)
        self.packs = on_cpu and self._pack()
        self._cast(dtype)
        self._describe(model, dtype)
        if options.prepack and on_cpu:
            layers = prepacking.prepack(self._model, self._threads.values())
            log.debug("weights laid out ahead", layers=layers)
        self.dim = len(self.run(self.collate(self.tokenize(["dimension"])), alone=False)[0])

    def _describe(self, model: Model, dtype: torch.dtype) -> None:
        """Sets what is said of the model."""
        self.commit = _commit(self._model)
        kind = str(self.device).partition(":")[0]  # all of a host's GPUs give the same
        what = f"{self.commit} {dtype} {kind} {sentence_transformers.__version__}"
        self.revision = revision_of(model.path, what)
        self.dtype = str(dtype).removeprefix("torch.")
        self.pooling = _pooling(self._model)
        self.max_input_tokens = 0 if self._reader is None else self._reader.longest or 0

    def _pack(self) -> bool:
        """Has the transformer run batches without padding, if it then gives what it gives otherwise."""
        transformer = self._model[0]
        if self._tokenizer is None or not isinstance(transformer, Transformer):
            return False
        usual = transformer.model.config._attn_implementation  # noqa: SLF001 - there is no public way to ask
        expected = self._encode(PROBE)
        self.packs = True  # from here on, for the trial
        self._first_position = packing.first_position_of(transformer.model)
        try:
            transformer.model.set_attn_implementation(packing.IMPLEMENTATION)
            found = self.run(self.collate(self.tokenize(PROBE)), alone=False)
            if float(abs(found - expected).max()) <= PROBE_TOLERANCE:
                return True
        except Exception as error:  # noqa: BLE001 - not every model can be served so, and each says it in its own way
            log.debug("this model does not pack", error=type(error).__name__)
        transformer.model.set_attn_implementation(usual)
        self.packs = False
        return False

    def _cast(self, dtype: torch.dtype) -> None:
        """Turns the transformer's numbers into a shorter format. What comes after it, pooling first, keeps float32."""
        if dtype != torch.float32:
            self._model[0].to(dtype)
            self._model[0].register_forward_hook(_widen)

    def _fast_tokenizer(self) -> PreTrainedTokenizerFast | None:
        first = self._model[0]
        plain = isinstance(first, Transformer) and "message" not in first.modality_config
        tokenizer = getattr(first, "processor", None)
        if not plain or not isinstance(tokenizer, PreTrainedTokenizerFast):
            return None
        if tokenizer.pad_token_id is None or any(not getattr(module, "include_prompt", True) for module in self._model):
            return None
        return tokenizer

    def tokenize(self, inputs: Sequence[Input], options: Options = PLAIN) -> Sequence[Tokenized | Whole]:
        """Returns token ids with the model's special tokens, cut to its longest sequence.

        Raises:
            InputRefused: see gpuworker.backends.base.
        """
        if self._reader is not None:
            return self._reader.read(inputs, options)
        raw = self.normalizes and options.normalize is False
        if raw or (options.prompt_name, options.truncate) != (None, "right"):
            raise InputRefused("This model takes texts as they are: without prompt_name, truncate, or normalize=false.")
        if any(isinstance(each, bytes) for each in inputs):
            raise InputRefused("This model takes texts, no token ids.")
        return [Whole(each) for each in inputs if isinstance(each, str)]

    def collate(self, inputs: Sequence[Any]) -> Any:  # noqa: ANN401 - tensors by name, or texts
        """Returns padded tensors on the device, or the texts."""
        if self._tokenizer is None:
            return [each.text for each in inputs]
        if self.packs:
            return self._packed([each.ids for each in inputs])
        padded = self._tokenizer.pad({"input_ids": [each.ids for each in inputs]}, padding=True, return_tensors="pt")
        features = dict(padded)
        if "token_type_ids" in self._tokenizer_inputs:
            features["token_type_ids"] = torch.zeros_like(features["input_ids"])
        return {name: tensor.to(self._model.device) for name, tensor in features.items()}

    def _packed(self, sequences: list[list[int]]) -> dict[str, Any]:
        order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
        features = packing.pack([sequences[i] for i in order], self._first_position)
        if "token_type_ids" in self._tokenizer_inputs:
            features["token_type_ids"] = torch.zeros_like(features["input_ids"])
        return {**features, "places": np.argsort(order)}

    def run(self, batch: Any, op: str = EMBED, *, alone: bool, raw: bool = False) -> Vector | list[Vector]:  # noqa: ANN401
        """Returns what `encode` returns for these texts, `raw` without the step that normalizes; or that of each token.

        Raises:
            InputRefused: see gpuworker.backends.base.
        """
        if op == EMBED_ALL:
            return self._run_each_token(batch, alone=alone)
        if self._tokenizer is None:
            self._use_threads(alone=alone)
            return self._encode(batch)
        steps = list(self._model)[:-1] if raw and self.normalizes else [self._model]
        found: Vector = self._through(steps, batch, alone=alone)["sentence_embedding"].float().cpu().numpy()
        places = batch.get("places")
        return found if places is None else found[places]

    def _run_each_token(self, batch: Any, *, alone: bool) -> list[Vector]:  # noqa: ANN401
        """Returns what the transformer gives for each token, special ones included."""
        if self._tokenizer is None:
            raise InputRefused("This model has no vectors of tokens.")
        features = self._through([self._model[0]], batch, alone=alone)
        found: Vector = features["token_embeddings"].float().cpu().numpy()
        if "places" not in batch:
            mask = batch["attention_mask"].bool().cpu().numpy()
            return [vectors[kept] for vectors, kept in zip(found, mask, strict=True)]
        by_length = np.split(found[0], batch["cu_seq_lens_q"].tolist()[1:-1])
        return [by_length[place] for place in batch["places"]]

    def _through(self, steps: Sequence[torch.nn.Module], batch: dict[str, Any], *, alone: bool) -> dict[str, Any]:
        """Returns what these parts of the model, one after the other, make of a batch."""
        self._use_threads(alone=alone)
        features = {**batch, "modality": "text"}
        features.pop("places", None)
        with torch.inference_mode():
            for step in steps:
                features = step(features)
        return features

    def _use_threads(self, *, alone: bool) -> None:
        if self.device == "cpu":
            torch.set_num_threads(self._threads[alone])

    def show_tokens(self, inputs: Sequence[Input], options: Options) -> list[list[Token]]:
        """Returns the tokens of each text. Raises InputRefused: see gpuworker.backends.base."""
        return self._readable().show_tokens(inputs, options)

    def decode(self, inputs: Sequence[Input], options: Options) -> list[str]:
        """Returns the text that each input's token ids make. Raises InputRefused: see gpuworker.backends.base."""
        return self._readable().decode(inputs, options)

    def _readable(self) -> Reader:
        if self._reader is None:
            raise InputRefused("This model's tokenizer is its own affair: it shows no tokens.")
        return self._reader

    def free_memory(self) -> None:
        """Has torch give back what it holds of the GPU's memory."""
        if self.device.startswith("cuda"):
            torch.cuda.empty_cache()

    def warmup(self) -> None:
        """Runs one short and one longer batch: the first ones allocate memory and choose kernels."""
        words = "the quick brown fox jumps over the lazy dog "
        for repeats, number in ((1, 1), (3, 8)):
            self.run(self.collate(self.tokenize([words * repeats] * number)), alone=False)

    def _encode(self, texts: Sequence[str]) -> Vector:
        vectors: Vector = self._model.encode(
            list(texts), batch_size=len(texts), show_progress_bar=False, convert_to_numpy=True
        )
        return vectors.astype("float32", copy=False)


def _commit(model: SentenceTransformer) -> str:
    """Returns which commit on the hub a model is of; empty if it says none."""
    config = getattr(getattr(model[0], "model", None), "config", None)
    return getattr(config, "_commit_hash", None) or ""


def _pooling(model: SentenceTransformer) -> str:
    """Returns how a model makes one vector of its tokens'; empty where that is no step of its own."""
    modes = next((each.pooling_mode for each in model if isinstance(each, Pooling)), "")
    return modes if isinstance(modes, str) else "+".join(modes)


def _normalizes(model: SentenceTransformer) -> bool:
    """Whether the last step of a model is to give its vectors length 1."""
    last = model[-1]
    return isinstance(last, Normalize) and last.module_output_name == "sentence_embedding"


def dtype_of(name: str, device: str) -> torch.dtype:
    """Returns the format of that name; for `auto`, the short one that a GPU computes in, and float32 elsewhere."""
    if name != "auto":
        return DTYPES[name]
    if not device.startswith("cuda"):
        return torch.float32
    has_bfloat16 = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    return torch.bfloat16 if has_bfloat16 else torch.float16


def _widen(_module: object, _arguments: object, features: dict[str, Any]) -> dict[str, Any]:
    """A hook behind the transformer: a mean over tokens would lose what a short format cannot hold."""
    wide = {name: value.float() for name, value in features.items() if _is_short(value)}
    return {**features, **wide}


def _is_short(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in (torch.bfloat16, torch.float16)
