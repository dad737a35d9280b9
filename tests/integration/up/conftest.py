"""Fixtures of the tests of `redbatch up`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.up.up_process import Start, ups_in


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The current folder of the user."""
    path = tmp_path / "folder"
    path.mkdir()
    return path


@pytest.fixture
def start(tmp_path: Path, folder: Path) -> Iterator[Start]:
    """Starts `redbatch up` in an empty folder with the Redis server of the suite. Ends leftovers of a failing test."""
    with ups_in(tmp_path, folder) as start:
        yield start
