"""How many files a process may open: each connection is one."""

from __future__ import annotations

import resource


def raise_open_file_limit() -> None:
    """Raises the soft limit of open files to the hard one: each connection of a client is a file."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # macOS names no number; what there is must do
        return
