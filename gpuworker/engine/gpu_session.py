"""An engine on its GPU."""

from __future__ import annotations

import os
from collections.abc import Callable

from gpuworker.ipc.shared_memory import Window
from gpuworker.engine.host_lock import HostLock
from gpuworker.engine.lease_guard import Tenure
from gpuworker.engine.gpu_turn import OWN, SharedTurn, Turn
from gpuworker.ipc.engine_options import EngineOptions
from gpuworker.ipc.frames import Header
from gpuworker.models import ModelError


class Presence:
    """An engine on its GPU, as its worker grants it. Returns when the GPU is its own, or it may take turns on it.

    Args:
        options: of the engine.
        lock: what it is to lock on its host.
        window: shows until when it may use the GPU.
        send: sends the worker a frame.

    Attributes:
        turn: to be taken before each batch.

    Raises:
        ModelError: this system cannot show it.
    """

    def __init__(
        self, options: EngineOptions, lock: str, window: Window | None, send: Callable[[Header], None]
    ) -> None:
        self.turn: Turn = OWN
        self._shared: SharedTurn | None = None
        if options.gpu_lease == "off":
            return
        if window is None:
            raise ModelError("gpu_lease: this system has no memfd_create(2), by which an engine sees its lease")
        tenure, host = Tenure(window.until), HostLock(options.gpu_lease_dir)
        os.register_at_fork(after_in_child=host.disown)
        if options.gpu_lease == "batch":
            self.turn = self._shared = SharedTurn(tenure, host, lambda kind: send({"kind": kind}))
        else:
            tenure.begin()
            host.take(lock)

    def take(self, header: Header) -> bool:
        """Takes in a frame; returns whether it was about the GPU."""
        if header["kind"] != "turn" or self._shared is None:
            return False
        self._shared.grant(header["lock"])
        return True
