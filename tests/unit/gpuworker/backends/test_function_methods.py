"""The methods of a user's class: which it may have, what they get, and what their results have to be."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import orjson
import pytest

from gpuworker.backends.base import ModelOutputError
from gpuworker.backends.function_methods import (
    FunctionMethods,
    MethodsError,
    check_methods,
    find_misspelled_methods,
)
from gpuworker.functions import PerInputFunction, VectorizedFunction


class VectorTransformer:
    """A base class of the user's own, as in a program that used no Redbatch before."""

    def preprocess(self, x: list[Any]) -> Any:  # noqa: ANN401, D102
        raise NotImplementedError

    def transform(self, x: Any) -> Any:  # noqa: ANN401, D102
        raise NotImplementedError

    def postprocess(self, pre: Any, trans: Any) -> list[Any]:  # noqa: ANN401, D102
        raise NotImplementedError


class Squarer(VectorTransformer):
    """Squares numbers as an array, and returns each with its root."""

    def preprocess(self, x: list[Any]) -> Any:  # noqa: ANN401, D102
        return np.asarray(x, dtype=np.float64)

    def transform(self, x: Any) -> Any:  # noqa: ANN401, D102
        return x**2

    def postprocess(self, pre: Any, trans: Any) -> list[Any]:  # noqa: ANN401, D102
        return [f"{root:g}^2={square:g}" for root, square in zip(pre, trans, strict=True)]


class PerInput(PerInputFunction):
    """The same with methods for one input."""

    def preprocess_input(self, value: Any) -> float:  # noqa: ANN401, D102
        return float(value)

    def transform(self, values: Any) -> Any:  # noqa: ANN401, D102
        return [each**2 for each in values]

    def postprocess_output(self, output: Any) -> str:  # noqa: ANN401, D102
        return f"={output:g}"


class TransformAlone:
    """Has no other method."""

    def transform(self, values: list[Any]) -> list[Any]:  # noqa: D102
        return [[each, len(values)] for each in values]


class Subclass(VectorizedFunction):
    """Inherits the other methods of the protocol."""

    def transform(self, batch: Any) -> Any:  # noqa: ANN401, D102
        return batch


class AllMethods(Squarer):
    """Has methods for batches and for one input."""

    def preprocess_input(self, value: Any) -> int:  # noqa: ANN401, D102
        return int(value) + 1

    def postprocess_output(self, output: str) -> str:  # noqa: D102
        return f"<{output}>"


def outputs(function: object, *values: Any) -> list[bytes]:  # noqa: ANN401 - any JSON value
    """Returns the outputs for some inputs."""
    check_methods(function)
    methods = FunctionMethods(function)
    return methods.compute(
        methods.preprocess([methods.preprocess_input(orjson.dumps(each).decode()) for each in values])
    )


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (Squarer(), [b'"2^2=4"', b'"3^2=9"']),
        (PerInput(), [b'"=4"', b'"=9"']),
        (TransformAlone(), [b"[2,2]", b"[3,2]"]),
        (Subclass(), [b"2", b"3"]),
        (AllMethods(), [b'"<3^2=9>"', b'"<4^2=16>"']),
    ],
)
def test_each_form_gives_one_output_for_each_input(function: object, expected: list[bytes]) -> None:
    """Methods of whole batches, of one input, `transform` alone, a subclass with no other, and all together."""
    assert outputs(function, 2, 3) == expected


def test_the_protocols_type_both_forms() -> None:
    """A class that is no subclass has the type of its form, for mypy, which checks this file."""
    batches: VectorizedFunction = Squarer()
    one_by_one: PerInputFunction = PerInput()
    assert (FunctionMethods(batches).preprocesses_batches, FunctionMethods(one_by_one).preprocesses_batches) == (
        True,
        False,
    )
    assert not FunctionMethods(Subclass()).preprocesses_batches, "an inherited method does nothing worth a thread"


def class_with(**methods: object) -> type:
    """Returns a class with these methods, and a `transform` unless it is given."""
    return type("Other", (), {"transform": lambda _self, values: values} | methods)


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ({"transform": None}, r"has no transform: write transform\(self, inputs\), which returns one result per"),
        ({"postprocess": lambda _self, _output: None}, r"postprocess that does not take \(preprocessed, outputs\)"),
        ({"postprocess": lambda _self, _output: None}, "call it postprocess_output"),
        ({"preprocess": lambda _self: None}, "call it preprocess_input"),
        ({"transform": lambda _self, _a, _b: None}, r"transform that does not take \(batch\)"),
        ({"preprocess_input": staticmethod(lambda: None)}, r"does not take \(value\)"),
        ({"retry_on": TimeoutError}, "no tuple of exception classes"),
        ({"retry_on": (KeyboardInterrupt,)}, "no tuple of exception classes"),
    ],
)
def test_a_class_with_other_methods_is_refused_in_words(methods: dict[str, object], message: str) -> None:
    """A method for one input that has the name of one for batches is found before the first request."""
    with pytest.raises(MethodsError, match=message):
        check_methods(class_with(**methods)())


@pytest.mark.parametrize("retry_on", [TimeoutError, (1, 2), [TimeoutError]])
def test_what_the_constructor_sets_is_checked_too(retry_on: object) -> None:
    """Otherwise it fails later, in a thread of the engine."""
    function = class_with()()
    function.retry_on = retry_on
    with pytest.raises(MethodsError, match="no tuple of exception classes"):
        check_methods(function)


@pytest.mark.parametrize(
    "methods",
    [
        {"postprocess": lambda _self, _pre, _out, _more=1: []},
        {"preprocess": staticmethod(list)},
        {"preprocess": classmethod(lambda _cls, inputs: inputs)},
        {"preprocess_input": int},
        {"cost": functools.lru_cache(lambda _self, _value: 1)},
        {"transform": functools.partialmethod(lambda _self, _scale, values: values, 2)},
        {"retry_on": (TimeoutError, OSError)},
    ],
)
def test_methods_of_any_kind_are_accepted(methods: dict[str, object]) -> None:
    """Static methods, those of the class, built-in, cached and partial ones, and more arguments with defaults."""
    check_methods(class_with(**methods)())


@pytest.mark.parametrize(
    ("names", "misspelled"),
    [
        ("preproces", {"preproces": "preprocess"}),
        ("post_process warm_up", {"post_process": "postprocess", "warm_up": "warmup"}),
        ("preProcess warmUp", {"preProcess": "preprocess", "warmUp": "warmup"}),
        ("preprocess_inputs costs", {"preprocess_inputs": "preprocess_input", "costs": "cost"}),
        ("preprocess preproces", {}),  # the method is there: this is another
        ("preprocess_one fit fit_transform compute_cost _preproces load", {}),
    ],
)
def test_a_misspelled_method_is_found(names: str, misspelled: dict[str, str]) -> None:
    """If it resembles one that the class lacks; a class may have any other methods for itself."""
    function = class_with(**dict.fromkeys(names.split(), lambda _self, _x: None))()
    function.warm_up = len  # an attribute is no method of the class
    assert dict(find_misspelled_methods(function)) == misspelled


@pytest.mark.parametrize("kind", [staticmethod, classmethod, functools.cache])
def test_a_misspelled_method_of_any_kind_is_found(kind: Any) -> None:  # noqa: ANN401
    """One that is called without an object, too."""
    function = class_with(preproces=kind(lambda *inputs: inputs))()
    assert dict(find_misspelled_methods(function)) == {"preproces": "preprocess"}


def test_a_class_that_lists_names_which_are_not_there_has_no_misspelled_methods() -> None:
    """Its metaclass may compute them."""

    class Computed(type):
        def __dir__(cls) -> list[str]:
            return ["preproces"]

    assert list(find_misspelled_methods(Computed("Function", (TransformAlone,), {})())) == []


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([1], "transform returned 1 result for 2 inputs"),
        ([1, 2, 3], "transform returned 3 results for 2 inputs"),
        (np.zeros((3, 2)), "transform returned 3 results"),
        (7, "transform returned a int, not a sequence"),
        (None, "transform returned a NoneType"),
        ({"a": 1, "b": 2}, "transform returned a dict"),
        ("ab", "transform returned a str"),
        ([1, object()], r"an output has no JSON form \(Type is not JSON serializable: object\)"),
        ([1, 2**64], r"an output has no JSON form \(Integer exceeds 64-bit range\)"),
    ],
)
def test_results_that_are_none_are_an_error_in_words(returned: object, message: str) -> None:
    """It could not be said which result is for which input. The message holds nothing of an input."""
    with pytest.raises(ModelOutputError, match=message):
        outputs(class_with(transform=lambda _self, _values: returned)(), 1, 2)
    with pytest.raises(ModelOutputError, match=message.replace("transform", "postprocess")):
        outputs(class_with(postprocess=lambda _self, _pre, _outputs: returned)(), 1, 2)


async def _coroutine(*_: object) -> None:
    pass


async def _generator(*_: object) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize("method", [_coroutine, _generator, functools.partial(_coroutine)])
@pytest.mark.parametrize("name", ["preprocess", "postprocess", "preprocess_input", "postprocess_output", "warmup"])
def test_a_method_that_nothing_would_await_is_refused(name: str, method: object) -> None:
    """Its result would be an object that never runs, which only the first request would show."""
    function = TransformAlone()
    setattr(function, name, method)
    with pytest.raises(MethodsError, match=f"has an async {name}, which nothing would await: write it without async"):
        check_methods(function)
