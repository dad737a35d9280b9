"""An engine on its GPU."""

from __future__ import annotations

import os
from collections.abc import Callable

from gpuworker.engine.gpu_turn import UNSHARED, GpuTurn, SharedTurn
from gpuworker.engine.host_lock import HostLock
from gpuworker.engine.lease_guard import LeaseGuard
from gpuworker.ipc.engine_options import EngineOptions
from gpuworker.ipc.messages import GrantTurn, Message
from gpuworker.ipc.shared_memory import SharedMemoryReader
from gpuworker.models import ModelLoadError


class GpuSession:
    """An engine on its GPU, as its worker grants it. Returns when the GPU is its own, or it may take turns on it.

    Args:
        options: of the engine.
        lock: what it is to lock on its host.
        window: shows until when it may use the GPU.
        send: sends the worker a frame.

    Attributes:
        turn: to be taken before each batch.

    Raises:
        ModelLoadError: this system cannot show it.
    """

    def __init__(
        self, options: EngineOptions, lock: str, window: SharedMemoryReader | None, send: Callable[[Message], None]
    ) -> None:
        self.turn: GpuTurn = UNSHARED
        self._shared: SharedTurn | None = None
        if options.gpu_lease == "off":
            return
        if window is None:
            raise ModelLoadError("gpu_lease: this system has no memfd_create(2), by which an engine sees its lease")
        tenure, host = LeaseGuard(window.until), HostLock(options.gpu_lease_dir)
        os.register_at_fork(after_in_child=host.disown)
        if options.gpu_lease == "batch":
            self.turn = self._shared = SharedTurn(tenure, host, send)
        else:
            tenure.begin()
            host.take(lock)

    def take(self, message: Message) -> bool:
        """Handles a message about the GPU. Returns False for any other message."""
        if not isinstance(message, GrantTurn) or self._shared is None:
            return False
        self._shared.grant(message.lock)
        return True
