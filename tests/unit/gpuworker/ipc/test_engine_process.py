"""The worker's side of its engine."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

import uvloop

from gpuworker.ipc.engine_process import EngineHost, _FrameProtocol


def test_what_is_sent_to_an_engine_that_has_just_died_is_dropped() -> None:
    """On the event loop of a worker: the transport is closed before anybody has read the end of the stream."""

    async def send_on_and_on() -> None:
        host = EngineHost(cast("Any", None), cast("Any", None), print, print, print)
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        protocol = host._frames = _FrameProtocol(host._handle, loop.create_future())
        transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
        host.ready = True
        theirs.close()
        for _ in range(20):
            host.send({"kind": "drop", "keys": []})
            await asyncio.sleep(0.001)
        assert transport.is_closing()
        assert protocol.ended.done()

    uvloop.run(send_on_and_on())
