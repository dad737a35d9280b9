"""Defers the import of a module of which a library imports functions that an engine never calls."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


@contextmanager
def defer_import(name: str) -> Iterator[None]:
    """During the block, `from name import function` imports nothing: the function imports the module when it is called.

    Does nothing if the module is imported already. Imports of modules below it raise ImportError in the block.

    Args:
        name: of the module, of which nothing but functions may be imported.
    """
    if name in sys.modules:
        yield
        return
    module = ModuleType(name)
    module.__getattr__ = lambda attribute: _deferred_function(module, attribute)  # type: ignore[method-assign]
    sys.modules[name] = module
    try:
        yield
    finally:
        _remove(module)


def _deferred_function(module: ModuleType, name: str) -> Callable[..., Any]:
    if name.startswith("__"):  # of a module; what looks through all modules must not take it for a function
        raise AttributeError(name)

    def function(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - those of the function
        _remove(module)
        return getattr(importlib.import_module(module.__name__), name)(*args, **kwargs)

    return function


def _remove(module: ModuleType) -> None:
    if sys.modules.get(module.__name__) is module:
        del sys.modules[module.__name__]
