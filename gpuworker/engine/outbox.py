"""Frames on their way from the engine to its worker."""

from __future__ import annotations

import os
import queue
import socket
import threading

from gpuworker.ipc import frames

_OUTBOX_FRAMES = 64
"""Frames that may wait to be sent. A worker that does not read holds its engine up, rather than fill its memory."""

_SHORT_BYTES = 64 * 2**10
"""A socket takes as much at once, unless its reader is late; then a runner waits as long as the outbox would."""


class Outbox:
    """Frames on their way to the worker. A thread sends long ones, so that the runner that made one need not wait.

    A worker that reads late holds runners up all the same: one with a short frame until the long one that is on its way
    is through, one with a long frame when 64 of them wait. Short ones may overtake long ones.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._turn = threading.Lock()
        self._waiting: queue.Queue[bytes] = queue.Queue(_OUTBOX_FRAMES)

    def put(self, frame: bytes) -> None:
        """Sends a frame soon, or now if it is short."""
        if len(frame) <= _SHORT_BYTES:
            self._write(frame)
        else:
            self._waiting.put(frame)

    def flush(self) -> None:
        """Returns when all that was put is sent."""
        self._waiting.join()

    def send(self, header: frames.Header) -> None:
        """Sends a frame before it returns: the worker reads it even if this process dies in the next moment."""
        self._write(frames.encode(header))

    def run(self) -> None:
        """Sends what was put, for ever."""
        while True:
            self._write(self._waiting.get())
            self._waiting.task_done()

    def _write(self, frame: bytes) -> None:
        try:
            with self._turn:
                self._sock.sendall(frame)
        except OSError:
            os._exit(0)  # the worker is gone, and with it everybody who waits for this engine
