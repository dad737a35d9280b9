"""The methods of a user's function, as the engine calls them: those that the class lacks pass their argument on."""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

import orjson

from gpuworker.backends.base import ModelOutputError
from gpuworker.backends.function_values import decode_input, encode_output
from gpuworker.functions import PerInputFunction, VectorizedFunction
from shared.messages import Input

MAX_COST = 2**31

_ARGUMENTS = {
    "preprocess": ("inputs",),
    "transform": ("batch",),
    "postprocess": ("preprocessed", "outputs"),
    "preprocess_input": ("value",),
    "postprocess_output": ("output",),
    "cost": ("value",),
}
"""The methods of both protocols, with their arguments."""

_OTHER_FORM = {"preprocess": "preprocess_input", "postprocess": "postprocess_output"}
"""Where the methods for one input have another name."""

_DEFAULTS = [getattr(each, name, None) for each in (VectorizedFunction, PerInputFunction) for name in _ARGUMENTS]
"""The methods of the protocols themselves: a subclass that inherits one does not have it."""

RETRY_ON = "retry_on"
MIN_SIMILARITY = 0.85
"""A lower ratio of equal letters finds helpers, such as `preprocess_one`."""


class MethodsError(Exception):
    """An object of a class does not have the methods of a function; the message names the method and what it takes."""


_TAKEN = object()
"""In place of a value that a run has taken."""


@dataclass(slots=True)
class PreprocessedInput:
    """An input as `preprocess_input` returned it; it counts as one token unless the class has a method `cost`.

    One run takes the value, and the class may change it. Each further run gets a new value, made of `content` again.
    """

    content: Input
    value: Any
    tokens: int = 1

    @property
    def truncated(self) -> bool:
        """False: Redbatch cuts no input of a function."""
        return False


class CollatedInputs(NamedTuple):
    """A batch of `size` inputs, as `preprocess` returned it."""

    size: int
    preprocessed: Any


class FunctionMethods:
    """The methods of an object of the user's class, which was checked with `check_methods`.

    Attributes:
        has_costs: whether the class has the method `cost`.
        preprocesses_batches: whether the class has the method `preprocess`.
        preprocesses_inputs: whether the class has the method `preprocess_input`.
        retry_on: the exceptions after which an input runs again.
    """

    def __init__(self, function: object) -> None:
        self._transform: Callable[[Any], Any] = function.transform  # type: ignore[attr-defined]  # it was checked
        self._preprocess = _method(function, "preprocess")
        self._postprocess = _method(function, "postprocess")
        self._preprocess_input = _method(function, "preprocess_input")
        self._postprocess_output = _method(function, "postprocess_output")
        self._cost = _method(function, "cost")
        self.warmup = _method(function, "warmup") or (lambda: None)
        self.has_costs = self._cost is not None
        self.preprocesses_batches = self._preprocess is not None
        self.preprocesses_inputs = self._preprocess_input is not None
        self._input_lock = threading.Lock()  # a class expects one call at a time; a run again is in another thread
        self.retry_on: tuple[type[BaseException], ...] = tuple(getattr(function, RETRY_ON, ()))

    def preprocess_input(self, content: Input) -> PreprocessedInput:
        """Returns one input for `preprocess`. Raises any error of the class, or InputRefusedError: it is malformed."""
        value = self._make_value(content)
        return PreprocessedInput(content, value, self._cost_of(value))

    def _make_value(self, content: Input) -> Any:  # noqa: ANN401 - anything that the class makes of an input
        value = decode_input(content)
        if self._preprocess_input is None:
            return value
        with self._input_lock:
            return self._preprocess_input(value)

    def _cost_of(self, value: Any) -> int:  # noqa: ANN401 - as `preprocess_input` returned it
        """Returns what a value counts towards `max_batch_tokens`. Raises ModelOutputError: `cost` gives none."""
        if self._cost is None:
            return 1
        returned = self._cost(value)
        try:
            cost: int = math.ceil(returned)
        except (TypeError, ValueError, OverflowError):  # no number, NaN, infinity
            cost = 0
        if not 1 <= cost <= MAX_COST:
            raise ModelOutputError(f"its method cost returned no number above 0, and at most {MAX_COST}")
        return cost

    def preprocess(self, inputs: Sequence[PreprocessedInput]) -> CollatedInputs:
        """Returns a batch as `transform` takes it. Raises any error of the class."""
        values = [self._take_value(each) for each in inputs]
        return CollatedInputs(len(values), values if self._preprocess is None else self._preprocess(values))

    def _take_value(self, preprocessed: PreprocessedInput) -> Any:  # noqa: ANN401 - as `preprocess_input` returned it
        value, preprocessed.value = preprocessed.value, _TAKEN
        return self._make_value(preprocessed.content) if value is _TAKEN else value

    def compute(self, batch: CollatedInputs) -> list[bytes]:
        """Returns the output of each input, as JSON.

        Raises:
            ModelOutputError: there is not one output for each input, or one has no JSON form.
            Exception: any error of the class.
        """
        outputs, source = self._transform(batch.preprocessed), "transform"
        if self._postprocess is not None:
            outputs, source = self._postprocess(batch.preprocessed, outputs), "postprocess"
        _check_outputs(outputs, source, batch.size)
        finish = self._postprocess_output
        return [_encode(each if finish is None else finish(each)) for each in outputs]


def check_methods(function: object) -> None:
    """Raises MethodsError if an object has no `transform`, a method with other arguments or one that is a coroutine.

    The same for a wrong `retry_on`.

    The object and not its class, since that shows how a method is called: it may be static, or wrapped in a cache, or
    set by the constructor.
    """
    if _method(function, "transform") is None:
        raise MethodsError("has no transform: write transform(self, inputs), which returns one result per input")
    _check_no_method_is_async(function)
    for name, arguments in _ARGUMENTS.items():
        method = _method(function, name)
        if method is None:
            continue
        try:
            inspect.signature(method).bind(*arguments)
        except TypeError:
            hint = f"; for one input at a time, call it {_OTHER_FORM[name]}" if name in _OTHER_FORM else ""
            raise MethodsError(f"has a {name} that does not take ({', '.join(arguments)}){hint}") from None
        except ValueError:  # it is built in, and has no signature
            continue
    retry_on = getattr(function, RETRY_ON, ())
    if not isinstance(retry_on, tuple) or not all(
        isinstance(each, type) and issubclass(each, Exception) for each in retry_on
    ):
        raise MethodsError(f"has a {RETRY_ON} that is no tuple of exception classes")


def _check_no_method_is_async(function: object) -> None:
    for name in (*_ARGUMENTS, "warmup"):
        method = _method(function, name)
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            raise MethodsError(
                f"has an async {name}, which nothing would await: write it without async, with asyncio.run(...) around "
                "what it awaits"
            )


def find_misspelled_methods(function: object) -> Iterator[tuple[str, str]]:
    """Yields each public method that is never called but resembles one that the object lacks, and the name of that.

    These deserve a warning and not an error: a class that was written for another service may have them for itself.
    """
    lacking = [each for each in (*_ARGUMENTS, "warmup") if _method(function, each) is None]
    for name in dir(type(function)):
        if name.startswith("_") or name in _ARGUMENTS:
            continue
        method = inspect.getattr_static(type(function), name, None)  # a metaclass may list names that are not there
        if not callable(getattr(method, "__func__", method)):  # of a static method or one of the class
            continue
        for hook in get_close_matches(name.lower(), lacking, n=1, cutoff=MIN_SIMILARITY):
            yield name, hook


def _method(owner: object, name: str) -> Callable[..., Any] | None:
    """Returns a method of an object; None if there is none, or that of the protocol."""
    method = getattr(owner, name, None)
    function = getattr(method, "__func__", method)
    return method if callable(method) and not any(function is each for each in _DEFAULTS) else None


def _check_outputs(outputs: object, source: str, size: int) -> None:
    """Raises ModelOutputError if these are not `size` outputs. Its message holds nothing of an input."""
    ordered = hasattr(outputs, "__len__") and not isinstance(outputs, str | bytes | Mapping | AbstractSet)
    if not ordered:
        raise ModelOutputError(f"{source} returned a {type(outputs).__name__}, not a sequence of results")
    num_outputs = len(outputs)  # type: ignore[arg-type]  # it has a length
    if num_outputs != size:
        counts = f"{num_outputs} result{'s' * (num_outputs != 1)} for {size} input{'s' * (size != 1)}"
        raise ModelOutputError(f"{source} returned {counts}")


def _encode(output: object) -> bytes:
    try:
        return encode_output(output)
    except orjson.JSONEncodeError as error:  # its text names types and limits, and quotes no value
        raise ModelOutputError(f"an output has no JSON form ({error})") from error
