"""The connections of one process to one queue, which all lead to one Redis: see shared.home."""

from __future__ import annotations

from shared.connection import OnUnexpectedReply, RedisConnection
from shared.home_guard import HomeGuard
from shared.keys import Keys
from shared.redis_opener import ConnectionSource
from shared.redis_topology import tag_of_shard
from shared.redis_url import parse_url
from shared.refused_commands import RefusedCommands
from shared.settings import QueueSettings


class QueueConnections:
    """The connections of one process to one queue, which all lead to one Redis: the home.

    Args:
        settings: where Redis is, and its timeout.
        name: the queue.
        client: prefix of the names of this process's connections in CLIENT LIST.
        on_unexpected: called with each error reply that no caller can do anything about, so that it can be logged:
            callers only know that Redis is out of reach.
    """

    def __init__(
        self,
        settings: QueueSettings,
        name: str,
        client: str,
        on_unexpected: OnUnexpectedReply = lambda _connection, _reply: None,
    ) -> None:
        self.settings = settings
        self.keys = self.keys_of(name)
        self._client = client
        self.on_unexpected = on_unexpected
        self.source = ConnectionSource(settings, self.keys)
        self.refused = RefusedCommands(name)
        self._roaming: list[RedisConnection] = []
        self._connections: list[RedisConnection] = []
        self.home = HomeGuard(name, self._connections, self.connection("home").reopen)

    def keys_of(self, queue: str) -> Keys:
        """Returns the keys of a queue, or of its shard, in the Redis of these connections."""
        return Keys(queue, tag_of_shard(queue, *parse_url(self.settings.redis_url).shard))

    def connection(self, purpose: str, *, identified: bool = False) -> RedisConnection:
        """Returns a new connection of this process, named `<client>:<purpose>`."""
        name = f"{self._client}:{purpose}"
        connection = RedisConnection(self, name, identified=identified)
        self._connections.append(connection)
        return connection

    @property
    def answered_at(self) -> float:
        """When Redis last answered over any connection that is open now; see `RedisConnection.answered_at`."""
        return max(each.answered_at for each in self._connections)

    def shared_connection(self, purpose: str, instead: RedisConnection | None = None) -> RedisConnection:
        """Returns a connection for keys that several queues share, which a Redis Cluster may have on other servers.

        Where there is only one server, it is `instead`, if that is given.
        """
        if not self.source.is_cluster:
            return instead or self.connection(purpose)
        connection = RedisConnection(self, f"{self._client}:{purpose}", roams=True)
        self._roaming.append(connection)
        return connection

    async def follow_switches(self) -> None:
        """Moves all connections as soon as a sentinel says that another server is the master; until cancelled."""
        await self.source.locator.follow(lambda master: self.home.reset_others(str(master)))

    def reset_all(self) -> None:
        """Resets every connection to the home: see `RedisConnection.reset`."""
        self.home.reset_all()

    async def close(self) -> None:
        """Closes every connection."""
        await self.home.stop()
        for connection in (*self._connections, *self._roaming):
            await connection.close()
        await self.source.locator.close()
