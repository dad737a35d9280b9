"""Helm in a separate process, without torch and what else the tests load.

Its library brings the runtime of Go, with threads and signal handlers. In a process of tests, which has loaded torch
and more, it ended the process once (not reproduced since). Go allows no signal handler without SA_ONSTACK beside it
(https://pkg.go.dev/os/signal, "Go programs that use cgo or SWIG"), and a library may install one.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self


class RefusedError(Exception):
    """Helm refuses the values: the text is that of Helm."""


class Helm:
    """Renders and lints one chart; a context manager, which ends the process."""

    def __init__(self, chart: Path) -> None:
        self._chart = chart
        self._pool = ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def render(self, values: Mapping[str, Any], namespace: str) -> dict[str, str]:
        """Returns what Helm renders, by template. Raises RefusedError: Helm refuses the values."""
        return self._pool.submit(_render, self._chart, dict(values), namespace).result()

    def lint(self, namespace: str) -> dict[str, Any]:
        """Returns the report of `helm lint --strict`."""
        return self._pool.submit(_lint, self._chart, namespace).result()


def _render(chart: Path, values: dict[str, Any], namespace: str) -> dict[str, str]:
    """In the process: returns the texts by template. Raises RefusedError."""
    library = importlib.import_module("helm_python")
    try:
        with library.Chart.load(chart) as loaded:
            rendered: dict[str, str] = loaded.render(values, name="any", namespace=namespace)
    except library.HelmError as error:
        raise RefusedError(str(error)) from None
    return rendered


def _lint(chart: Path, namespace: str) -> dict[str, Any]:
    """In the process: returns the report of `helm lint --strict`."""
    report: dict[str, Any] = importlib.import_module("helm_python").lint(chart, strict=True, namespace=namespace)
    return report
