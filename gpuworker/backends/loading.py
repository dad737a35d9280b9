"""A sentence-transformers model from its files, and what is to be known of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from sentence_transformers.util import get_device_name
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from gpuworker.models import Model, ModelError, one_line

if TYPE_CHECKING:
    from gpuworker.ipc.engine_options import EngineOptions

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load(model: Model, options: EngineOptions, device: str, dtype: torch.dtype) -> SentenceTransformer:
    """Returns the model, ready to run: from safetensors alone, and without code of its own.

    Raises:
        ModelError: the model is not there, or is none.
    """
    transformers_logging.disable_progress_bar()
    logging.getLogger("sentence_transformers").setLevel(logging.WARNING)  # the worker says what it loads
    try:
        loaded = SentenceTransformer(
            model.path,
            device=device,
            revision=options.model_revision,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True, "dtype": dtype},
        )
    except Exception as error:  # the libraries raise whatever they meet: OSError, ValueError, RuntimeError, ...
        raise ModelError(f"model {model.name} cannot be loaded: {one_line(error)}") from error
    return loaded.eval()


def device_of(options: EngineOptions) -> str:
    """Returns where the model runs, as torch names it.

    Raises:
        ModelError: its backend does not run there.
    """
    if options.backend == "torch":
        return get_device_name() if options.device == "auto" else options.device
    if options.device not in ("auto", "cpu"):
        raise ModelError(f"--backend {options.backend} runs on a CPU; for {options.device} take --backend torch")
    return "cpu"


def dtype_of(name: str, device: str) -> torch.dtype:
    """Returns the format of that name; for `auto`, the short one that a GPU computes in, and float32 elsewhere."""
    if name != "auto":
        return DTYPES[name]
    if not device.startswith("cuda"):
        return torch.float32
    has_bfloat16 = torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if has_bfloat16 else torch.float16


def fast_tokenizer_of(model: SentenceTransformer) -> PreTrainedTokenizerFast | None:
    """Returns the tokenizer of a transformer of texts, where texts can be tokenized apart from the model's run."""
    first = model[0]
    plain = isinstance(first, Transformer) and "message" not in first.modality_config
    tokenizer = getattr(first, "processor", None)
    if not plain or not isinstance(tokenizer, PreTrainedTokenizerFast):
        return None
    if tokenizer.pad_token_id is None or any(not getattr(module, "include_prompt", True) for module in model):
        return None
    return tokenizer


def commit_of(model: SentenceTransformer) -> str:
    """Returns which commit on the hub a model is of; empty if it says none."""
    config = getattr(getattr(model[0], "model", None), "config", None)
    return getattr(config, "_commit_hash", None) or ""


def pooling_of(model: SentenceTransformer) -> str:
    """Returns how a model makes one vector of its tokens'; empty where that is no step of its own."""
    modes = next((each.pooling_mode for each in model if isinstance(each, Pooling)), "")
    return modes if isinstance(modes, str) else "+".join(modes)


def normalizes(model: SentenceTransformer) -> bool:
    """Whether the last step of a model is to give its vectors length 1."""
    last = model[-1]
    return isinstance(last, Normalize) and last.module_output_name == "sentence_embedding"


def cast(model: SentenceTransformer, dtype: torch.dtype) -> None:
    """Turns the transformer's weights into a shorter format. What comes after it, pooling first, keeps float32.

    So do tables that are no weights: the angles of rotary positions would be off by whole turns.
    """
    if dtype != torch.float32:
        for parameter in model[0].parameters():
            parameter.data = parameter.data.to(dtype)
        model[0].register_forward_hook(_widen)


def _widen(_module: object, _arguments: object, features: dict[str, Any]) -> dict[str, Any]:
    """A hook behind the transformer: a mean over tokens would lose what a short format cannot hold."""
    wide = {name: value.float() for name, value in features.items() if _is_short(value)}
    return {**features, **wide}


def _is_short(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in (torch.bfloat16, torch.float16)
