"""Loads a sentence-transformers model from its files, and finds out its properties."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

import torch
from sentence_transformers.base.model import BaseModel
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from sentence_transformers.util import get_device_name
from transformers import PreTrainedTokenizerFast

from gpuworker.backends.library_log import log_library_records
from gpuworker.backends.load_advice import advice_for
from gpuworker.model_spec import Model, ModelLoadError, one_line

if TYPE_CHECKING:
    from gpuworker.ipc.engine_options import EngineOptions

M = TypeVar("M", bound=BaseModel)


def load_model(model_class: type[M], model: Model, options: EngineOptions, device: str, dtype: torch.dtype) -> M:
    """Returns the model, ready to run. Only safetensors are loaded, and no code that comes with the model.

    Raises:
        ModelLoadError: the model does not exist, or cannot be loaded: it has no safetensors, say.
    """
    log_library_records()
    logging.getLogger("sentence_transformers").setLevel(logging.WARNING)  # the worker logs what it loads
    try:
        loaded = model_class(
            model.path,
            device=device,
            revision=options.model_revision,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True, "dtype": dtype},
        )
    except Exception as error:  # the libraries raise errors of any class: OSError, ValueError, RuntimeError, ...
        advice = advice_for(model.path, error)
        reason = f"{advice} ({one_line(error)})" if advice else one_line(error)
        raise ModelLoadError(f"model {model.name} cannot be loaded: {reason}") from error
    return loaded.eval()


def doubts_about(model: BaseModel) -> list[str]:
    """Returns why the vectors of a model that was loaded probably mean nothing; usually nothing."""
    first, doubts = model[0], []
    tokenizer = getattr(first, "processor", None)
    if isinstance(tokenizer, PreTrainedTokenizerFast) and set(tokenizer.get_vocab()) <= set(
        tokenizer.all_special_tokens
    ):
        doubts.append(
            "its tokenizer knows no words, as tokenizer.json is missing: different texts have the same vector"
        )
    return doubts


def device_of(options: EngineOptions) -> str:
    """Returns where the model runs, as torch names it.

    Raises:
        ModelLoadError: the backend does not run on the device of the options.
    """
    if options.backend == "torch":
        return get_device_name() if options.device == "auto" else options.device
    if options.device not in ("auto", "cpu"):
        raise ModelLoadError(f"--backend {options.backend} runs on a CPU; for {options.device} use --backend torch")
    return "cpu"


def fast_tokenizer_of(model: BaseModel) -> PreTrainedTokenizerFast | None:
    """Returns the tokenizer of a transformer of texts; None if texts cannot be tokenized apart from the model's run."""
    first = model[0]
    plain = isinstance(first, Transformer) and "message" not in first.modality_config
    tokenizer = getattr(first, "processor", None)
    if not plain or not isinstance(tokenizer, PreTrainedTokenizerFast):
        return None
    if tokenizer.pad_token_id is None or any(not getattr(module, "include_prompt", True) for module in model):
        return None
    return tokenizer


def commit_of(model: BaseModel) -> str:
    """Returns the commit of a model on the hub; empty if it names none."""
    config = getattr(getattr(model[0], "model", None), "config", None)
    return getattr(config, "_commit_hash", None) or ""


def pooling_of(model: BaseModel) -> str:
    """Returns how a model makes one vector of those of its tokens; empty if that is no separate step."""
    modes = next((each.pooling_mode for each in model if isinstance(each, Pooling)), "")
    return modes if isinstance(modes, str) else "+".join(modes)


def normalizes(model: BaseModel) -> bool:
    """Returns whether the last step of a model gives its vectors length 1."""
    last = model[-1]
    return isinstance(last, Normalize) and last.module_output_name == "sentence_embedding"
