"""The Redis server that `redbatch up` starts for its cluster, and restarts at the same address when it dies.

Only this user reaches it: it listens on a socket in a private folder.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from redbatch.up.data_dir import DataDir
from redbatch.up.line_reader import LineReader
from redbatch.up.local_redis import LocalRedis, LocalRedisError
from redbatch.up.private_folder import remove_abandoned_folders
from redbatch.up.redis_log import redis_record
from redbatch.up.restarts import Restart, decide_restart
from redbatch.up.supervisor import SupervisorCallbacks

NAME = "redis"
CHECK_EVERY_S = 0.1
NOTICE_AFTER_S = 5.0
"""A start that takes longer is reported."""


class SupervisedRedis:
    """A supervised LocalRedis inside an event loop.

    Args:
        callbacks: receive its output, its deaths, and the report that it cannot run.
        max_bytes: its maxmemory, beyond which it refuses to write, and evicts nothing.
        data_dir: the folder that keeps its data; None: a death loses them.
        syncs_always: whether it answers a write only once the disk has it: Redis before 7.2 confirms no later sync.
    """

    def __init__(
        self,
        callbacks: SupervisorCallbacks,
        max_bytes: int,
        data_dir: DataDir | None = None,
        *,
        syncs_always: bool = False,
    ) -> None:
        self._callbacks = callbacks
        self._lines = LineReader(self._take_line)
        self._server = LocalRedis(
            options=("--maxmemory", str(max_bytes), *(("--appendfsync", "always") if syncs_always else ())),
            output=self._lines.descriptor,
            data_dir=data_dir,
            unix_socket=True,
        )
        self._keeps_data = data_dir is not None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Starts the server and its supervision; returns its URL. If it is cancelled, call `stop`.

        First it removes the folders that killed ones have left.

        Raises LocalRedisError.
        """
        remove_abandoned_folders()
        self._lines.start()
        await self._start_server()
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
        record = redis_record(text, datetime.now(UTC).isoformat())
        # The warning about overcommit concerns forks, which rewrite kept data; without any, there are none.
        if record is not None and (self._keeps_data or "overcommit" not in text):
            self._callbacks.on_line(NAME, record)

    async def _start_server(self) -> None:
        """Starts the server, which may take long with kept data. Raises LocalRedisError."""
        text = "still loads the data that it kept" if self._keeps_data else "does not answer yet"
        notice = asyncio.get_running_loop().call_later(NOTICE_AFTER_S, self._callbacks.on_event, NAME, text)
        try:
            await self._server.start_async()
        finally:
            notice.cancel()

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
                consequence = "keeps its data" if self._keeps_data else "lost its data"
                self._callbacks.on_event(NAME, f"died and {consequence}; starting again at the same address")
                await asyncio.sleep(decision.delay_s)
            started = clock()
            try:
                await self._start_server()
            except LocalRedisError as error:
                self._callbacks.on_give_up(NAME, str(error))
                return
