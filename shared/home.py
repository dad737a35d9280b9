"""Which Redis is the home of a queue: the one master that all connections of a process lead to. Pure.

An address may lead to several masters for a while: a replica is promoted while its old master still takes writes, or
the old master comes back empty before it is demoted. Connections to different masters see different queues. So each new
connection is compared with the home, and only one that leads there, or to its successor, is used.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

NO_PARENT = "0" * 40
ANCESTORS_KEPT = 16
"""Number of replication ids of former homes that are remembered."""


class Server(NamedTuple):
    """What a Redis says about itself.

    `run_id` is new for each start of the process. `replication_id` names its data, and changes when it is promoted, and
    also when it gets its first replica. After a promotion `parent_id` is the id of the master that it was a replica of,
    and `parent_offset` is how far it had followed that master.
    """

    run_id: str
    replication_id: str
    parent_id: str = ""
    parent_offset: int = -1
    is_master: bool = True


class Admission(Enum):
    """Whether a connection may be used: it leads to the home, or to the next home, or to another Redis."""

    SAME = "same"
    MOVES = "moves"
    REFUSED = "refused"


def parse_server(info: bytes) -> Server | None:
    """Returns what the sections `server` and `replication` of INFO say; None if they do not identify this Redis."""
    lines = (line.partition(":") for line in info.decode("ascii", "replace").splitlines())
    fields = {name: value for name, _, value in lines}
    run_id, replication_id = fields.get("run_id", ""), fields.get("master_replid", "")
    if not run_id or not replication_id:
        return None
    parent_id, offset = fields.get("master_replid2", NO_PARENT), fields.get("second_repl_offset", "")
    return Server(
        run_id,
        replication_id,
        "" if parent_id == NO_PARENT else parent_id,
        int(offset) if offset.isdecimal() else -1,
        fields.get("role", "master") == "master",
    )


class Home:
    """The home of the connections of one process to one queue. Its first connection chooses it."""

    def __init__(self) -> None:
        self._server: Server | None = None
        self._ids: list[str] = []
        """Replication ids of the home, present and past."""
        self._ancestors: list[str] = []
        """Those of former homes, from the first on, without the homes that were left for a better one."""

    def admit(self, server: Server, *, is_alive: bool) -> Admission:
        """Decides on a new connection to a Redis; `is_alive` says whether other connections still reach the home.

        The home moves to a successor, which was promoted from it. It also moves to a better successor of a former home:
        if that died, a connection may have met its restarted, empty self first. If two masters succeed the same one,
        the one that followed it further is better, so all processes choose the same. A home that is not alive is
        left for any other master.
        """
        if not server.is_master:
            return Admission.REFUSED
        home = self._server
        if home is None or server.run_id == home.run_id or server.replication_id == home.replication_id:
            self._server = server
            if server.replication_id not in self._ids:
                self._ids.append(server.replication_id)
            return Admission.SAME
        if server.parent_id in self._ids or not is_alive:
            self._ancestors = [*self._ancestors, *self._ids][-ANCESTORS_KEPT:]
        elif self._rank(server) <= self._rank(home):
            return Admission.REFUSED
        self._server, self._ids = server, [server.replication_id]
        return Admission.MOVES

    def _rank(self, server: Server) -> tuple[int, int]:
        """Orders successors of former homes: by which of them it succeeds, and by how far it had followed that."""
        if server.parent_id not in self._ancestors:
            return -1, -1
        return self._ancestors.index(server.parent_id), server.parent_offset
