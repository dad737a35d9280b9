"""Error replies of Redis as exceptions: all of them mean that Redis is out of reach for the caller.

A caller that can do better than to try again later catches the class of the reply first.
"""

from __future__ import annotations

from shared.errors import RedisUnreachableError

MAX_REPLY_CHARS = 200

_MESSAGE = "Redis refuses to serve: try again."


class KeyMovedError(RedisUnreachableError):
    """The key is on another server of a Redis Cluster, or on its way to one."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is there, not on its way."""
        return self.reply.startswith("MOVED ")


class UnexpectedReplyError(RedisUnreachableError):
    """An error that the same call may always get: only callers that name a subclass know what to do."""


class GroupMissingError(UnexpectedReplyError):
    """The consumer group is missing: the stream was deleted, flushed, or never read."""


class CommandUnknownError(UnexpectedReplyError):
    """This Redis is too old for a command."""


class NotPermittedError(UnexpectedReplyError):
    """The user of the URL lacks the permission for a command or key."""


class ScriptMissingError(UnexpectedReplyError):
    """Redis does not know a script by its SHA-1."""


class ScriptRefusedError(UnexpectedReplyError):
    """A script refused the call, for a reason that its header gives."""


_MOVED_PREFIXES = ("MOVED ", "ASK ", "TRYAGAIN ")
_MOVED_IN_SCRIPT = "access a non local key"
"""A script found a key, which is not among its KEYS, on the way to another server."""

_SUBCLASSES: dict[str, type[UnexpectedReplyError]] = {
    "NOSCRIPT": ScriptMissingError,
    "NOPERM": NotPermittedError,
    "NOGROUP": GroupMissingError,
    "UNBLOCKED the stream key": GroupMissingError,
    "unknown command": CommandUnknownError,
    "unknown subcommand": CommandUnknownError,
    "Command is not available": CommandUnknownError,  # of Upstash
    "STALE": ScriptRefusedError,
}

_REPLICA_WORDS = ("READONLY", "MASTERDOWN", "instance state changed")
"""Redis is a replica now. Its connections stay open, and only a new one may lead to the master."""

_CLUSTER_WORDS = ("CLUSTERDOWN", "the cluster is down")

_NO_SUCH_DATABASE = "DB index is out of range"

_UNAVAILABLE_WORDS = (
    *("LOADING", "OOM", "BUSY ", "MISCONF", "NOREPLICAS", "NOAUTH", "UNBLOCKED", "max number of clients"),
    *_REPLICA_WORDS,
    *_CLUSTER_WORDS,
    _NO_SUCH_DATABASE,
)


def to_exception(reply: str) -> RedisUnreachableError:
    """Returns the exception for an error reply."""
    error = _class_of(reply)(_MESSAGE)
    # Redis quotes arguments of a command that it does not know: these may be a client's.
    error.reply = reply.partition(", with args beginning with")[0][:MAX_REPLY_CHARS]
    error.is_refused = isinstance(error, NotPermittedError) or _NO_SUCH_DATABASE in reply
    return error


def leads_elsewhere(reply: str) -> bool:
    """Whether a new connection to the same address may lead to a server that does not give this error reply."""
    return _is_moved(reply) or any(words in reply for words in (*_REPLICA_WORDS, *_CLUSTER_WORDS))


def became_replica(reply: str) -> bool:
    """Whether the server is a replica now: its connections stay open and may read, and none leads to the master."""
    return any(words in reply for words in _REPLICA_WORDS)


def _class_of(reply: str) -> type[RedisUnreachableError]:
    if _is_moved(reply):
        return KeyMovedError
    for words, subclass in _SUBCLASSES.items():
        if words in reply:
            return subclass
    return RedisUnreachableError if any(words in reply for words in _UNAVAILABLE_WORDS) else UnexpectedReplyError


def _is_moved(reply: str) -> bool:
    return reply.startswith(_MOVED_PREFIXES) or _MOVED_IN_SCRIPT in reply
