"""Commands with their output in the error."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

TIMEOUT_S = 60.0
MAX_OUTPUT_CHARS = 6_000


class CommandError(AssertionError):
    """A command failed; the message has the end of its output."""


def run(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str = "",
    timeout_s: float = TIMEOUT_S,
) -> str:
    """Runs a command and returns what it wrote to stdout.

    Raises CommandError: it failed, or has not ended in time.
    """
    shown = " ".join(map(str, command))
    try:
        ran = subprocess.run(
            command, env=env, cwd=cwd, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"not within {timeout_s:g} s: {shown}") from error
    if ran.returncode:
        output = (ran.stdout + ran.stderr)[-MAX_OUTPUT_CHARS:]
        raise CommandError(f"exit code {ran.returncode}: {shown}\n{output}")
    return ran.stdout
