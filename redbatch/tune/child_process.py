"""A process of a private cluster: started with a log of its own, and ended with all of its children."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from redbatch.up.cluster import ChildSpec
from shared.process.parent_death import wrapped


class Program:
    """A running process. It ends with this one, however that ends.

    Args:
        spec: its command line, environment and descriptors.
        log: the file that it writes to.
    """

    def __init__(self, spec: ChildSpec, log: Path) -> None:
        self.name = spec.name
        self._log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                wrapped(spec.command, signal.SIGTERM),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=spec.environment,
                pass_fds=spec.descriptors,
                start_new_session=True,  # the terminal's Ctrl-C is for the command, which stops this one in order
            )

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def last_line(self) -> str:
        """Returns the last that it said."""
        lines = [line for line in self._lines() if line.strip()]
        return lines[-1] if lines else "it said nothing"

    def logged(self, message: str) -> dict[str, Any]:
        """Returns the last log line with this message, empty when there is none."""
        for line in reversed(self._lines()):
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and event.get("msg") == message:
                    return event
        return {}

    def stop(self, grace_s: float) -> None:
        """Ends it with SIGTERM, and after the grace time kills it; what is left of its group too."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace_s)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _lines(self) -> list[str]:
        return self._log.read_text(encoding="utf-8", errors="replace").splitlines()
