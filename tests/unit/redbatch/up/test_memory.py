"""The memory that the Redis of `redbatch up` may take."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from redbatch.up.memory import default_redis_bytes
from shared.process import memory


@pytest.mark.parametrize(
    ("limits", "expected"),
    [((), None), (("max\n",), None), (("1000000\n",), 1_000_000), ((f"{2**63}\n", "800\n"), 800)],
)
def test_a_container_has_the_memory_of_its_limit(
    limits: tuple[str, ...], expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the least of the machine's memory and the limits that there are; Redis gets a quarter."""
    paths = [tmp_path / str(number) for number in range(2)]
    for path, text in zip(paths, limits, strict=False):
        path.write_text(text)
    monkeypatch.setattr(memory, "CGROUP_LIMITS", paths)
    assert memory.memory_bytes() == (expected or psutil.virtual_memory().total)
    assert default_redis_bytes() == memory.memory_bytes() // 4
