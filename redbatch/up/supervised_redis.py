"""The Redis servers that `redbatch up` starts for its cluster, and restarts at the same address when they die.

Only this user reaches them: each listens on a socket in a private folder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from redbatch.up.data_dir import DataDir
from redbatch.up.line_reader import LineReader
from redbatch.up.local_redis import LocalRedis, LocalRedisError
from redbatch.up.private_folder import remove_abandoned_folders
from redbatch.up.redis_log import redis_record
from redbatch.up.restarts import Restart, decide_restart
from redbatch.up.supervisor import SupervisorCallbacks
from shared.redis_url import describe_address

NAME = "redis"
CHECK_EVERY_S = 0.1
NOTICE_AFTER_S = 5.0
"""A start that takes longer is reported."""


class SupervisedRedis:
    """A supervised LocalRedis inside an event loop.

    Args:
        callbacks: receive its output, its deaths, and the report that it cannot run.
        name: its name in these reports.
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
        name: str = NAME,
        syncs_always: bool = False,
    ) -> None:
        self._callbacks = callbacks
        self._name = name
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

    @property
    def _address(self) -> str:
        return describe_address(self._server.url)

    def _take_line(self, text: str) -> None:
        record = redis_record(text, datetime.now(UTC).isoformat(), self._address)
        # The warning about overcommit concerns forks, which rewrite kept data; without any, there are none.
        if record is not None and (self._keeps_data or "overcommit" not in text):
            self._callbacks.on_line(self._name, record)

    async def _start_server(self) -> None:
        """Starts the server, which may take long with kept data. Raises LocalRedisError."""
        notice = asyncio.get_running_loop().call_later(NOTICE_AFTER_S, self._report_start)
        try:
            await self._server.start_async()
        finally:
            notice.cancel()

    def _report_start(self) -> None:
        state = "still loads the data that it kept" if self._keeps_data else "does not answer yet"
        self._callbacks.on_event(self._name, f"at {self._address} {state}")

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
                self._callbacks.on_event(self._name, f"died and {consequence}; starting again at {self._address}")
                await asyncio.sleep(decision.delay_s)
            started = clock()
            try:
                await self._start_server()
            except LocalRedisError as error:
                self._callbacks.on_give_up(self._name, str(error))
                return


class SupervisedShards:
    """The supervised Redis servers of the shards of a cluster, of which one may be all.

    Args:
        callbacks: as of each; several have the names redis-0, redis-1 and so on, with the numbers of their shards.
        max_bytes: the maxmemory of all, of which each has an equal part.
        data_dirs: the folder of each.
        syncs_always: as of each.
    """

    def __init__(
        self,
        callbacks: SupervisorCallbacks,
        max_bytes: int,
        data_dirs: Sequence[DataDir | None],
        *,
        syncs_always: bool = False,
    ) -> None:
        names = [NAME] if len(data_dirs) == 1 else [f"{NAME}-{number}" for number in range(len(data_dirs))]
        self._servers = [
            SupervisedRedis(callbacks, max_bytes // len(data_dirs), data_dir, name=name, syncs_always=syncs_always)
            for name, data_dir in zip(names, data_dirs, strict=True)
        ]

    async def start(self) -> list[str]:
        """Starts all servers, and returns the URL of each. If it is cancelled or fails, call `stop`.

        Raises LocalRedisError.
        """
        return [await each.start() for each in self._servers]

    async def stop(self) -> None:
        """Ends all servers."""
        await asyncio.gather(*(each.stop() for each in self._servers))
