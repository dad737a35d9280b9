"""An engine's use of its GPU: its lock, lease guard and turns."""

from __future__ import annotations

import os
from collections.abc import Callable

from gpuworker.engine.gpu_turn import UNSHARED, GpuTurn, SharedTurn
from gpuworker.engine.host_lock import HostLock
from gpuworker.engine.lease_guard import LeaseGuard
from gpuworker.ipc.engine_options import EngineOptions
from gpuworker.ipc.messages import GrantTurn, Message
from gpuworker.ipc.shared_memory import SharedMemoryReader
from gpuworker.model_spec import ModelLoadError


class GpuSession:
    """An engine's use of the GPU that its worker grants.

    The constructor returns when the engine owns the GPU, or may take turns on it.

    Args:
        options: of the engine.
        lock_name: the lock to acquire on its host.
        shared_memory: holds until when the engine may use the GPU.
        send: sends a message to the worker.

    Attributes:
        turn: to be acquired before each batch.

    Raises:
        ModelLoadError: this system has no shared memory, so that the engine cannot see its lease; or the folder of the
            host lock cannot be used.
    """

    def __init__(
        self,
        options: EngineOptions,
        lock_name: str,
        shared_memory: SharedMemoryReader | None,
        send: Callable[[Message], None],
    ) -> None:
        self.turn: GpuTurn = UNSHARED
        self._shared_turn: SharedTurn | None = None
        if options.gpu_lease == "off":
            return
        if shared_memory is None:
            raise ModelLoadError("gpu_lease: this system has no memfd_create(2), by which an engine sees its lease")
        lease_guard, host_lock = LeaseGuard(shared_memory.until), HostLock(options.gpu_lease_dir)
        os.register_at_fork(after_in_child=host_lock.disown)
        if options.gpu_lease == "batch":
            self.turn = self._shared_turn = SharedTurn(lease_guard, host_lock, send)
        else:
            lease_guard.begin()
            host_lock.acquire(lock_name)

    def handle(self, message: Message) -> bool:
        """Handles a message about the GPU. Returns False for any other message."""
        if not isinstance(message, GrantTurn) or self._shared_turn is None:
            return False
        self._shared_turn.grant(message.lock)
        return True
