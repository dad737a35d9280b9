"""A user's class as a model: see gpuworker.functions."""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from gpuworker.backends.base import InputRefusedError, Token
from gpuworker.backends.function_values import decode_input, encode_output
from gpuworker.model_spec import Model, ModelLoadError
from shared.messages import DEFAULT_OPTIONS, PREDICT, Input, Options

if TYPE_CHECKING:
    from gpuworker.functions import VectorizedFunction
    from gpuworker.ipc.engine_options import EngineOptions

METHODS = ("preprocess", "transform", "postprocess")
MAX_BATCH_TOKENS = 16_384
_DIGITS = 16
MAX_COST = 2**31


@dataclass(frozen=True, slots=True)
class PreprocessedInput:
    """An input as `preprocess` returned it; it counts as one token unless the class has a method `cost`."""

    value: Any
    tokens: int = 1


class FunctionBackend:
    """Calls the three methods of an object of the user's class.

    Raises:
        ModelLoadError: there is no such class, it lacks one of these methods, or its constructor fails.
    """

    def __init__(self, model: Model, options: EngineOptions) -> None:
        _show_gpu(options.device)
        self._function = _create(model, options.model_args)
        self._cost = getattr(self._function, "cost", None)
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
        self.prepares_ahead = False  # collating takes no time: inputs that arrive while a batch runs join the next one

    def tokenize(self, inputs: Sequence[Input], options: Options = DEFAULT_OPTIONS) -> list[PreprocessedInput]:  # noqa: ARG002 - it has none
        """Preprocesses each input. Raises any error of the class, and InputRefusedError: an array is malformed."""
        values = [self._function.preprocess(decode_input(each)) for each in inputs]
        return [PreprocessedInput(each, self._cost_of(each)) for each in values]

    def _cost_of(self, value: Any) -> int:  # noqa: ANN401 - as preprocess returned it
        """Returns what a value counts towards `max_batch_tokens`. Raises ValueError: the class says no such number."""
        if not callable(self._cost):
            return 1
        cost: int = math.ceil(self._cost(value))
        if not 1 <= cost <= MAX_COST:
            raise ValueError(f"cost is not from 1 to {MAX_COST}")
        return cost

    def collate(self, inputs: Sequence[PreprocessedInput]) -> list[Any]:
        """Returns the values."""
        return [each.value for each in inputs]

    def run(self, batch: list[Any], op: str = PREDICT, *, exclusive: bool, raw: bool = False) -> list[bytes]:  # noqa: ARG002 - see base
        """Returns the outputs as JSON.

        Raises:
            ValueError: `transform` returned another number of results than it got values.
            Exception: any error of the class, or an output that JSON cannot hold.
        """
        results = self._function.transform(batch)
        if len(results) != len(batch):
            raise ValueError(f"transform gave {len(results)} results for {len(batch)} values")
        return [encode_output(self._function.postprocess(each)) for each in results]

    def show_tokens(self, inputs: Sequence[Input], options: Options) -> list[list[Token]]:  # noqa: ARG002 - refused
        """Raises InputRefusedError."""
        raise InputRefusedError("A function has no tokenizer.")

    def decode(self, inputs: Sequence[Input], options: Options) -> list[str]:  # noqa: ARG002 - refused
        """Raises InputRefusedError."""
        raise InputRefusedError("A function has no tokenizer.")

    def busy_s(self) -> float:
        """Returns 0: there is no device clock."""
        return 0.0

    def free_memory(self) -> None:
        """Does nothing: the class manages its memory itself."""

    def warmup(self) -> None:
        """Calls the `warmup` method of the class, if it has one."""
        warm_up = getattr(self._function, "warmup", None)
        if callable(warm_up):
            warm_up()


def _show_gpu(device: str) -> None:
    """Shows the class only this engine's GPU, as the first one, whatever library the class uses."""
    if device.startswith("cuda:"):
        index = device.partition(":")[2]
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        os.environ["CUDA_VISIBLE_DEVICES"] = (
            visible[int(index)].strip() if len(visible) > int(index) and visible[0] else index
        )


def _create(model: Model, model_args: str) -> VectorizedFunction:
    module_name, _, class_name = model.path.partition(":")
    # Last, so that no file in the folder hides a library. In a container the module is installed; on a laptop it is in
    # the current folder.
    sys.path.append(str(Path.cwd()))
    try:
        kind = getattr(importlib.import_module(module_name), class_name)
    except ModuleNotFoundError as error:
        hint = "install it, start Redbatch in its folder, or name that, absolute, in PYTHONPATH"
        raise ModelLoadError(f"model {model.name}: there is no module {error.name}: {hint}") from error
    except AttributeError as error:
        raise ModelLoadError(f"model {model.name}: {error}") from error
    except Exception as error:
        raise ModelLoadError(f"model {model.name} cannot be imported: {_one_line(error)}") from error
    missing = [each for each in METHODS if not callable(getattr(kind, each, None))]
    if missing:
        raise ModelLoadError(f"model {model.name} has no {', no '.join(missing)}: see gpuworker.functions")
    try:
        return cast("VectorizedFunction", kind(**json.loads(model_args or "{}")))
    except Exception as error:
        raise ModelLoadError(f"model {model.name} cannot be constructed: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    """Returns the class of an error and the first line of its text."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _revision(model: Model, model_args: str) -> str:
    """Returns the revision of a function: another one for another source or other arguments."""
    source = getattr(sys.modules[model.path.partition(":")[0]], "__file__", None)
    digest = hashlib.sha256(f"{model.path} {model_args}".encode())
    if source is not None:
        digest.update(Path(source).read_bytes())
    return digest.hexdigest()[:_DIGITS]
