"""What tests of backends share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def graphs(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Has the graphs that backends make kept for the next run of the tests, and nowhere else."""
    assert request.config.cache is not None
    with pytest.MonkeyPatch.context() as patch:
        folder = request.config.cache.mkdir("graphs")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder
