"""Reads the lines that child processes write to a pipe."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

MAX_LINE_BYTES = 1 << 20
FINISH_TIMEOUT_S = 0.5


class LineReader:
    """Passes each line written to a pipe to `on_line`.

    `descriptor` is the write end of the pipe; close it with `close_writer`.
    """

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._read, self.descriptor = os.pipe()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts to read in a task."""
        self._task = asyncio.get_running_loop().create_task(self._relay())

    def close_writer(self) -> None:
        """Closes this process' copy of the write end. Reading ends when all other processes have closed theirs."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    async def finish(self) -> None:
        """Reads the rest, for at most FINISH_TIMEOUT_S: a grandchild may still hold the pipe open."""
        self.close_writer()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=FINISH_TIMEOUT_S)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _relay(self) -> None:
        reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self._read, "rb")
        )
        try:
            while True:
                try:
                    line = await reader.readline()
                except ValueError:  # longer than MAX_LINE_BYTES; the reader has discarded it
                    continue
                if not line:
                    return
                self._on_line(line.decode(errors="replace").rstrip())
        finally:
            transport.close()
