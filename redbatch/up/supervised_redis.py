"""The Redis server that `redbatch up` starts for its cluster, and restarts on the same port when it dies."""

from __future__ import annotations

import asyncio

from redbatch.up.data_dir import DataDir
from redbatch.up.line_reader import LineReader
from redbatch.up.local_redis import LocalRedis, LocalRedisError
from redbatch.up.restarts import Restart, decide_restart
from redbatch.up.supervisor import SupervisorCallbacks

NAME = "redis"
CHECK_EVERY_S = 0.1


class SupervisedRedis:
    """A supervised LocalRedis inside an event loop.

    Args:
        callbacks: receive its output, its deaths, and the report that it cannot run.
        data_dir: the folder that keeps its data; None: a death loses them.
    """

    def __init__(self, callbacks: SupervisorCallbacks, data_dir: DataDir | None = None) -> None:
        self._callbacks = callbacks
        self._lines = LineReader(self._take_line)
        self._server = LocalRedis(output=self._lines.descriptor, data_dir=data_dir)
        self._data_state = "lost its data" if data_dir is None else "keeps its data"
        self._task: asyncio.Task[None] | None = None

    def start(self) -> str:
        """Starts the server and its supervision; returns its URL. Raises LocalRedisError."""
        self._lines.start()
        # Blocks for some milliseconds, but must run in this thread: the server dies with the thread that started it.
        self._server.start()
        self._task = asyncio.get_running_loop().create_task(self._keep_running())
        return self._server.url

    async def stop(self) -> None:
        """Ends the server and removes its temporary directory."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._server.stop()
        await self._lines.finish()

    def _take_line(self, text: str) -> None:
        # Drops the warning about overcommit at each start: it concerns forks that save data; there is no persistence.
        if "overcommit" not in text:
            self._callbacks.on_line(NAME, text)

    async def _keep_running(self) -> None:
        clock = asyncio.get_running_loop().time
        started, quick_deaths = clock(), 0
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            if self._server.is_running():
                continue
            decision = decide_restart(1, clock() - started, quick_deaths, was_ready=True)
            if isinstance(decision, Restart):
                quick_deaths = decision.quick_deaths
                self._callbacks.on_event(NAME, f"died and {self._data_state}; starting again on the same port")
                await asyncio.sleep(decision.delay_s)
            started = clock()
            try:
                self._server.start()
            except LocalRedisError as error:
                self._callbacks.on_give_up(NAME, str(error))
                return
