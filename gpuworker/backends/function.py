"""A class of the user's: see gpuworker.functions."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import orjson

from gpuworker.backends.base import InputRefusedError, Token
from gpuworker.models import Model, ModelLoadError
from shared.messages import DEFAULT_OPTIONS, PREDICT, Input, Options

if TYPE_CHECKING:
    from gpuworker.functions import VectorizedFunction
    from gpuworker.ipc.engine_options import EngineOptions

METHODS = ("preprocess", "transform", "postprocess")
MAX_BATCH_TOKENS = 16_384
_DIGITS = 16
_ARRAYS = orjson.OPT_SERIALIZE_NUMPY


@dataclass(frozen=True, slots=True)
class Prepared:
    """An input as `preprocess` has returned it; each counts as one token."""

    value: Any
    tokens: int = 1


class FunctionBackend:
    """Calls the three methods of an object of that class.

    Raises:
        ModelLoadError: there is no such class, it has not these methods, or it cannot be made.
    """

    def __init__(self, model: Model, options: EngineOptions) -> None:
        _show_gpu(options.device)
        self._function = _made(model, options.model_args)
        self.ops = frozenset((PREDICT,))
        self.dim = 0
        self.device = options.device if options.device.startswith("cuda:") else "cpu"
        self.revision = _revision(model, options.model_args)
        self.commit = ""
        self.dtype = ""
        self.pooling = ""
        self.max_input_tokens = 0
        self.max_batch_tokens = MAX_BATCH_TOKENS
        self.packs = True
        self.runners = 1
        self.normalizes = self.runs_sequentially = False
        self.prepares_ahead = False  # nothing is to be made: what arrives while a batch runs is in the next one

    def tokenize(self, inputs: Sequence[Input], options: Options = DEFAULT_OPTIONS) -> list[Prepared]:  # noqa: ARG002 - it has none
        """Preprocesses each input. Raises whatever the class does."""
        return [Prepared(self._function.preprocess(orjson.loads(each))) for each in inputs]

    def collate(self, inputs: Sequence[Prepared]) -> list[Any]:
        """Returns the values."""
        return [each.value for each in inputs]

    def run(self, batch: list[Any], op: str = PREDICT, *, exclusive: bool, raw: bool = False) -> list[bytes]:  # noqa: ARG002 - see base
        """Returns the outputs as JSON.

        Raises:
            ValueError: these are too few, or too many.
            Exception: whatever the class raises, or an output that JSON cannot hold.
        """
        results = self._function.transform(batch)
        if len(results) != len(batch):
            raise ValueError(f"transform gave {len(results)} results for {len(batch)} values")
        return [orjson.dumps(self._function.postprocess(each), _listed, _ARRAYS) for each in results]

    def show_tokens(self, inputs: Sequence[Input], options: Options) -> list[list[Token]]:  # noqa: ARG002 - refused
        """Raises InputRefusedError."""
        raise InputRefusedError("A function has no tokenizer.")

    def decode(self, inputs: Sequence[Input], options: Options) -> list[str]:  # noqa: ARG002 - refused
        """Raises InputRefusedError."""
        raise InputRefusedError("A function has no tokenizer.")

    def busy_s(self) -> float:
        """Nobody knows."""
        return 0.0

    def free_memory(self) -> None:
        """Does nothing: what the class keeps is its own affair."""

    def warmup(self) -> None:
        """Has the class warm itself up, if it has a method of that name."""
        warm_up = getattr(self._function, "warmup", None)
        if callable(warm_up):
            warm_up()


def _show_gpu(device: str) -> None:
    """Has the class see the one GPU that is this engine's, as the first: whatever it uses, it knows of no other."""
    if device.startswith("cuda:"):
        index = device.partition(":")[2]
        seen = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        os.environ["CUDA_VISIBLE_DEVICES"] = seen[int(index)].strip() if len(seen) > int(index) and seen[0] else index


def _made(model: Model, model_args: str) -> VectorizedFunction:
    module_name, _, class_name = model.path.partition(":")
    # Last, so that nothing here hides a library: a container has the module installed, a laptop has it beside itself.
    sys.path.append(str(Path.cwd()))
    try:
        kind = getattr(importlib.import_module(module_name), class_name)
    except ModuleNotFoundError as error:
        hint = "install it, start Redbatch in its folder, or name that, absolute, in PYTHONPATH"
        raise ModelLoadError(f"model {model.name}: there is no module {error.name}: {hint}") from error
    except AttributeError as error:
        raise ModelLoadError(f"model {model.name}: {error}") from error
    except Exception as error:
        raise ModelLoadError(f"model {model.name} cannot be imported: {_told(error)}") from error
    missing = [each for each in METHODS if not callable(getattr(kind, each, None))]
    if missing:
        raise ModelLoadError(f"model {model.name} has no {', no '.join(missing)}: see gpuworker.functions")
    try:
        return cast("VectorizedFunction", kind(**json.loads(model_args or "{}")))
    except Exception as error:
        raise ModelLoadError(f"model {model.name} cannot be made: {_told(error)}") from error


def _told(error: Exception) -> str:
    """Returns an error in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _revision(model: Model, model_args: str) -> str:
    """Returns what the function is known by: another for another source or other arguments."""
    source = getattr(sys.modules[model.path.partition(":")[0]], "__file__", None)
    digest = hashlib.sha256(f"{model.path} {model_args}".encode())
    if source is not None:
        digest.update(Path(source).read_bytes())
    return digest.hexdigest()[:_DIGITS]


def _listed(value: object) -> object:
    """Returns a tensor, or what else knows how to, as lists."""
    tolist = getattr(value, "tolist", None)
    if not callable(tolist):
        raise TypeError(type(value).__name__)
    return tolist()
