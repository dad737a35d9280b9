"""The memory that this process may have."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""The limit of a container, as it sees it: version 2 and 1."""


def memory_bytes() -> int:
    """Returns the memory of this machine in bytes, or of the container that this process is in if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # there is no such file, or it says "max"
            total = min(total, int(path.read_text()))
    return total
