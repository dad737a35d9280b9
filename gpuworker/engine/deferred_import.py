"""Defers the import of a module of which a library imports functions that an engine never calls."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


@contextmanager
def deferred(name: str) -> Iterator[None]:
    """During the block, `from name import function` imports nothing: the function imports the module when it is called.

    Does nothing if the module is imported already.

    Args:
        name: of the module, of which nothing but functions may be imported.
    """
    if name in sys.modules:
        yield
        return
    module = ModuleType(name)
    module.__getattr__ = lambda attribute: _deferred_function(name, attribute)  # type: ignore[method-assign]
    sys.modules[name] = module
    try:
        yield
    finally:
        if sys.modules.get(name) is module:
            del sys.modules[name]


def _deferred_function(module: str, name: str) -> Callable[..., Any]:
    if name.startswith("__"):  # of a module; what looks through all modules must not take it for a function
        raise AttributeError(name)

    def function(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - those of the function
        return getattr(importlib.import_module(module), name)(*args, **kwargs)

    return function
