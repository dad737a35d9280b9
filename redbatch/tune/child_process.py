"""A process of a private cluster: it has its own log file, and ends with all of its children."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from redbatch.up.child_spec import ChildSpec
from shared.process.parent_death import wrap_command


class ChildProcess:
    """A running process. It ends with this one, however this one ends.

    Args:
        spec: its command line, environment and descriptors.
        log: the file to which it writes.
    """

    def __init__(self, spec: ChildSpec, log: Path) -> None:
        self.name = spec.name
        self._log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                wrap_command(spec.command, signal.SIGTERM),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=spec.environment,
                pass_fds=spec.descriptors,
                start_new_session=True,  # Ctrl-C in the terminal is for the command, which stops this process in order
            )

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def last_line(self) -> str:
        """Returns the last line of its log."""
        lines = [line for line in self._lines() if line.strip()]
        return lines[-1] if lines else "its log is empty"

    def last_event(self, message: str) -> dict[str, Any]:
        """Returns the last log event with this message, or an empty dict."""
        for line in reversed(self._lines()):
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and event.get("msg") == message:
                    return event
        return {}

    def stop(self, grace_s: float) -> None:
        """Ends it with SIGTERM, and with SIGKILL after the grace time; then kills the rest of its process group."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace_s)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _lines(self) -> list[str]:
        return self._log.read_text(encoding="utf-8", errors="replace").splitlines()
