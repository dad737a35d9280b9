"""What an error reply of Redis means."""

from __future__ import annotations

import pytest

from shared.errors import RedisUnreachableError
from shared.redis_errors import (
    MAX_REPLY_CHARS,
    CommandUnknownError,
    GroupMissingError,
    KeyMovedError,
    NotPermittedError,
    ScriptMissingError,
    ScriptRefusedError,
    UnexpectedReplyError,
    leads_elsewhere,
    to_exception,
)

IN_SCRIPT = "ERR Error running script (call to f_1): @user_script:12: "
NON_LOCAL = "Script attempted to access a non local key in a cluster node"

CLASSES: dict[str, type[RedisUnreachableError]] = {
    "MOVED 11037 127.0.0.1:17102": KeyMovedError,
    "ASK 11037 127.0.0.1:17102": KeyMovedError,
    "TRYAGAIN Multiple keys request during rehashing of slot": KeyMovedError,
    f"{IN_SCRIPT}@user_script: 12: {NON_LOCAL}": KeyMovedError,
    f"ERR {NON_LOCAL} script: 1, on @user_script:12.": KeyMovedError,
    "NOSCRIPT No matching script. Please use EVAL.": ScriptMissingError,
    "NOPERM this user has no permissions to run the 'evalsha' command": NotPermittedError,
    "NOGROUP No such key 'a' or consumer group 'workers'": GroupMissingError,
    "UNBLOCKED the stream key no longer exists": GroupMissingError,
    "ERR unknown subcommand 'KILL'. Try CLIENT HELP.": CommandUnknownError,
    "ERR Command is not available: 'client kill'. See the documentation": CommandUnknownError,
    "ERR unknown command 'WAITAOF', with args beginning with: '1'": CommandUnknownError,
    "STALE this submit was overtaken by a later one": ScriptRefusedError,
    "CLUSTERDOWN Hash slot not served": RedisUnreachableError,
    "LOADING Redis is loading the dataset in memory": RedisUnreachableError,
    f"{IN_SCRIPT}-READONLY You can't write against a read only replica.": RedisUnreachableError,
    "CROSSSLOT Keys in request don't hash to the same slot": UnexpectedReplyError,
    "WRONGTYPE Operation against a key holding the wrong kind of value": UnexpectedReplyError,
    f"{IN_SCRIPT}attempt to index a nil value": UnexpectedReplyError,
    "ERR a task failed": UnexpectedReplyError,
    "": UnexpectedReplyError,
}


@pytest.mark.parametrize("reply", CLASSES)
def test_each_reply_means_that_redis_is_away(reply: str) -> None:
    """Callers that know more look at the class."""
    assert type(to_exception(reply)) is CLASSES[reply]


@pytest.mark.parametrize("reply", CLASSES)
def test_the_connection_is_left_if_another_may_be_better(reply: str) -> None:
    """An address may lead to another server of the cluster by now, or to the new master."""
    moved = CLASSES[reply] is KeyMovedError
    assert leads_elsewhere(reply) == (moved or any(words in reply for words in ("CLUSTERDOWN", "READONLY")))


def test_the_reply_is_for_logs_alone() -> None:
    """Clients do not see addresses and keys; logs see no arguments, which may be those of a client."""
    error = to_exception("ERR unknown command 'EVALSHA_RO', with args beginning with: 'secret'")
    assert "EVALSHA_RO" not in error.message
    assert error.log_message.endswith("Its reply: ERR unknown command 'EVALSHA_RO'")
    assert len(to_exception("x" * 1_000).reply) == MAX_REPLY_CHARS
