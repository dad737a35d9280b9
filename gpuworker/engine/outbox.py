"""Frames on their way from the engine to its worker."""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections.abc import Callable

from gpuworker.ipc import framing
from gpuworker.ipc.messages import Message, SharedMessage
from gpuworker.ipc.shared_memory import MIN_SHARED_BYTES, SharedMemoryWriter

_MAX_QUEUED_FRAMES = 64
"""Maximum frames that wait to be sent. If the worker does not read, the engine waits rather than fill its memory."""

_MAX_SHORT_BYTES = 64 * 2**10
"""A socket accepts a frame of this size at once, unless its reader is late: then a runner waits as the thread would."""


class Outbox:
    """Frames on their way to the worker. A thread sends long ones, so that the runner that made one need not wait.

    If the worker reads late, runners wait all the same: for a short frame until the long frame on its way is through,
    for a long frame while 64 of them wait. Short frames may overtake long ones.

    Args:
        sock: to the worker.
        memory: for frames of MIN_SHARED_BYTES or more, while it has room; None if the system has no shared memory.
    """

    def __init__(self, sock: socket.socket, memory: SharedMemoryWriter | None = None) -> None:
        self._sock = sock
        self._memory = memory
        self._memory_lock = threading.Lock()  # one thread writes, and another frees
        self._write_lock = threading.Lock()
        self._queue: queue.Queue[bytes | Callable[[], None]] = queue.Queue(_MAX_QUEUED_FRAMES)

    def put(self, frame: bytes) -> bool:
        """Sends a frame soon, or now if it is short. Returns whether it is still to be sent."""
        if len(frame) <= _MAX_SHORT_BYTES:
            self._write(frame)
            return False
        self._queue.put(frame)
        return True

    def call_later(self, on_sent: Callable[[], None]) -> None:
        """Calls back when every frame that was put has been sent."""
        self._queue.put(on_sent)

    def flush(self) -> None:
        """Returns when every frame that was put has been sent."""
        self._queue.join()

    def send(self, message: Message) -> None:
        """Sends a message before it returns: the worker reads it even if this process dies in the next moment."""
        self._write(framing.encode(message))

    def run(self) -> None:
        """Sends the frames that were put, for ever."""
        while True:
            item = self._queue.get()
            if isinstance(item, bytes):
                self._write(self._share(item))
            else:
                item()
            self._queue.task_done()

    def free(self, at: int) -> None:
        """Frees the memory of the frame at an offset, which the worker has read."""
        if self._memory is not None:
            with self._memory_lock:
                self._memory.free(at)

    def _share(self, frame: bytes) -> bytes:
        """Returns a frame to send in place of this one: if it is long, and there is room for it in shared memory."""
        if self._memory is None or len(frame) < MIN_SHARED_BYTES:
            return frame
        with self._memory_lock:
            at = self._memory.put(frame)
        return frame if at is None else framing.encode(SharedMessage(at, len(frame)))

    def _write(self, frame: bytes) -> None:
        try:
            with self._write_lock:
                self._sock.sendall(frame)
        except OSError:
            os._exit(0)  # the worker is gone, and nothing else waits for this engine
