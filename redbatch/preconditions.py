"""Checks before a long run: modules that are not installed, and result files that cannot be written."""

from __future__ import annotations

from pathlib import Path


def missing_module(*names: str) -> str | None:
    """Returns the first of these modules that is not installed, or None."""
    for name in names:
        try:
            __import__(name)
        except ModuleNotFoundError:
            return name
    return None


def check_file(option: str, path: Path | None) -> None:
    """Checks before a run that the result file of an option has a folder, and is none itself. Raises ValueError."""
    if path is not None and path.is_dir():
        raise ValueError(f"{option}: {path}: is a folder: name a file")
    if path is not None and not path.absolute().parent.is_dir():
        raise ValueError(f"{option}: {path}: its folder does not exist: make it, or name another")
