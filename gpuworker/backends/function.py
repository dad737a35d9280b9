"""A user's class as a model: see gpuworker.functions."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import structlog

from gpuworker.backends.base import MODEL_ERRORS, InputRefusedError, OneInputError, Token
from gpuworker.backends.function_methods import (
    CollatedInputs,
    FunctionMethods,
    MethodsError,
    PreprocessedInput,
    check_methods,
    find_misspelled_methods,
)
from gpuworker.backends.tokenizer_threads import set_tokenizer_threads
from gpuworker.gpu.devices import show_only
from gpuworker.model_spec import Model, ModelLoadError, one_line
from shared.messages import DEFAULT_OPTIONS, PREDICT, Input, Options
from shared.option_words import list_choices

if TYPE_CHECKING:
    from gpuworker.ipc.engine_options import EngineOptions

log = structlog.get_logger()

MAX_CLASSES_SHOWN = 10
"""Of a module that lacks the class in `--model`."""

MAX_BATCH_TOKENS = 16_384
_DIGITS = 16


class FunctionBackend:
    """Calls the methods of an object of the user's class.

    Raises:
        ModelLoadError: there is no such class, its constructor fails, or its object has other methods than a function.
    """

    def __init__(self, model: Model, options: EngineOptions) -> None:
        show_only(options.device, os.environ)  # as the first one, whatever library the class uses
        set_tokenizer_threads(1)  # others would compete with the class's own threads, and none survives a fork
        self._model = model
        self._methods = FunctionMethods(_create(model, options.model_args))
        self.ops = frozenset((PREDICT,))
        self.dim = 0
        self.device = options.device if options.device.startswith("cuda:") else "cpu"
        self.revision = _revision(model, options.model_args)
        self.commit = ""
        self.dtype = ""
        self.pooling = ""
        self.max_input_tokens = 0
        self.prompts: Sequence[str] = ()
        self.empty_prompts: Sequence[str] = ()
        self.parts: Sequence[str] = ()
        self.labels: Sequence[str] = ()
        self.activation = ""
        self.max_batch_tokens = MAX_BATCH_TOKENS
        self.packs = True
        self.runners = 1
        self.normalizes = self.runs_sequentially = False
        self.splits_batches = not self._methods.has_costs
        # Without `preprocess`, collating takes no time, and inputs that arrive while a batch runs join the next one.
        self.prepares_ahead = self._methods.preprocesses_batches
        self.collate_runs_user_code = self._methods.preprocesses_batches or self._methods.preprocesses_inputs
        self.retry_on = self._methods.retry_on

    def tokenize(self, inputs: Sequence[Input], options: Options = DEFAULT_OPTIONS) -> list[PreprocessedInput]:  # noqa: ARG002 - it has none
        """Preprocesses each input. Raises OneInputError: for any error of the class, or an array that is malformed."""
        return [self._preprocess(index, each) for index, each in enumerate(inputs)]

    def _preprocess(self, index: int, content: Input) -> PreprocessedInput:
        try:
            return self._methods.preprocess_input(content)
        except MODEL_ERRORS as error:
            raise OneInputError(error, index) from error

    def collate(self, inputs: Sequence[PreprocessedInput]) -> CollatedInputs:
        """Preprocesses inputs as a batch, with new values for those that ran before. Raises any error of the class."""
        return self._methods.preprocess(inputs)

    def run(self, batch: CollatedInputs, op: str = PREDICT, *, exclusive: bool, raw: bool = False) -> list[bytes]:  # noqa: ARG002 - see base
        """Returns the outputs as JSON.

        Raises:
            ModelOutputError: there is not one output for each input, or one has no JSON form.
            Exception: any error of the class.
        """
        return self._methods.compute(batch)

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
        """Calls the `warmup` method of the class, if it has one. Raises ModelLoadError: it raised an exception."""
        try:
            self._methods.warmup()
        except Exception as error:
            _log_traceback(self._model, error)
            raise ModelLoadError(f"model {self._model.name}: its warmup() failed: {_one_line(error)}") from error


def _create(model: Model, model_args: str) -> object:
    module_name, _, class_name = model.path.partition(":")
    # Last, so that no file in the folder hides a library. In a container the module is installed; on a laptop it is in
    # the current folder.
    sys.path.append(str(Path.cwd()))
    try:
        kind = getattr(importlib.import_module(module_name), class_name)
    except ModuleNotFoundError as error:
        _log_traceback(model, error)
        hint = _missing_module_hint(error.name, module_name)
        raise ModelLoadError(f"model {model.name}: there is no module {error.name}: {hint}") from error
    except AttributeError as error:
        _log_traceback(model, error)
        module = sys.modules.get(module_name)
        is_class_missing = error.name == class_name and error.obj is module
        hint = _hidden_file_hint(getattr(error.obj, "__name__", None)) or (
            _classes_hint(module) if module is not None and is_class_missing else ""
        )
        raise ModelLoadError(f"model {model.name}: {error}" + (f": {hint}" if hint else "")) from error
    except Exception as error:
        _log_traceback(model, error)
        hint = _hidden_file_hint(error.name) if isinstance(error, ImportError) else ""
        reason = _one_line(error) + (f": {hint}" if hint else "")
        raise ModelLoadError(f"model {model.name} cannot be imported: {reason}") from error
    if not isinstance(kind, type):
        raise ModelLoadError(f"model {model.name} is not a class: docs/functions.md has one")
    try:
        created: object = kind(**json.loads(model_args or "{}"))
    except Exception as error:
        _log_traceback(model, error)
        raise ModelLoadError(f"model {model.name} cannot be constructed: {_one_line(error)}") from error
    try:
        check_methods(created)
    except MethodsError as error:
        raise ModelLoadError(f"model {model.name} {error} (docs/functions.md)") from error
    for name, hook in find_misspelled_methods(created):
        log.warning("a method of the class is never called: is it misspelled?", method=name, known=hook)
    return created


def _hidden_file_hint(module_name: str | None) -> str:
    """Returns what to do if an imported module hides a file of the current folder, as `queue` a queue.py; else ""."""
    top = (module_name or "").partition(".")[0]
    module = sys.modules.get(top)
    own = next((each for each in (Path(f"{top}.py"), Path(top, "__init__.py")) if each.is_file()), None)
    place = getattr(module, "__file__", None) or "part of Python"
    if module is None or own is None or Path(place) == own.absolute():
        return ""
    return f"another module named {top} ({place}) comes before {own} here: give yours another name"


def _log_traceback(model: Model, error: Exception) -> None:
    """Logs where an exception comes from in the user's code, unless it was raised before that ran."""
    frames = error.__traceback__
    while frames is not None and _is_frame_of_import(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    if frames is not None or isinstance(error, SyntaxError):
        text = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
        log.error("the class cannot be made", model=model.name, exception=text)


def _is_frame_of_import(file_name: str) -> bool:
    return file_name in (__file__, importlib.__file__) or file_name.startswith("<frozen importlib")


def _missing_module_hint(missing: str | None, module_name: str) -> str:
    """Returns what to do about a missing module: that of the class, or one that this needs."""
    if hint := _hidden_file_hint(missing):
        return hint
    needs_it = "" if f"{module_name}.".startswith(f"{missing}.") else f"{module_name} needs it: "
    return f"{needs_it}install it, start Redbatch in its folder, or name that, absolute, in PYTHONPATH"


def _classes_hint(module: ModuleType) -> str:
    """Returns which classes a module defines, for the error that it lacks one; empty if there are none."""
    kinds = [each for each in vars(module).values() if isinstance(each, type) and each.__module__ == module.__name__]
    names = [each.__name__ for each in kinds if not each.__name__.startswith("_")]
    return f"it has {list_choices(names[:MAX_CLASSES_SHOWN])}" if names else ""


def _one_line(error: Exception) -> str:
    """Returns the class of an error and the first line of its text."""
    name, line = type(error).__name__, one_line(error)
    return name if line == name else f"{name}: {line}"


def _revision(model: Model, model_args: str) -> str:
    """Returns the revision of a function: another one for another source or other arguments."""
    source = getattr(sys.modules[model.path.partition(":")[0]], "__file__", None)
    digest = hashlib.sha256(f"{model.path} {model_args}".encode())
    if source is not None:
        digest.update(Path(source).read_bytes())
    return digest.hexdigest()[:_DIGITS]
