"""Runs a dead letter again and waits for the outcome: for `redbatch dead` and for the console of a gateway."""

from __future__ import annotations

import asyncio
import secrets
from typing import NamedTuple

from shared import dead_letters, producer
from shared.codec import CodecError, decode_reply
from shared.connection import RedisConnection
from shared.error_tree import error_tree
from shared.keys import Keys
from shared.messages import Failure

GONE = "gone"
NO_ANSWER = "no answer"
ANSWERED = "answered"
PROBLEMS = {
    GONE: "there is no such dead letter",
    "no body": "its inputs were too long to be kept",
    "unreadable": "it was not written by a worker",
    NO_ANSWER: "no answer in time: check with `redbatch queue` that a worker is alive",
}
UNKNOWN_ERROR = "error"
NUM_NEWEST = 20

_KNOWN_CODES = frozenset(each.code for each in error_tree())


class RequeueResult(NamedTuple):
    """Outcome of a requeue.

    `code` is ANSWERED, one of PROBLEMS, or the code of the error that answered; UNKNOWN_ERROR if shared.errors has no
    such code, as it must have no text of a client. `problem` says the same to people; empty if the letter was answered.
    """

    code: str
    problem: str


async def requeue_and_wait(connection: RedisConnection, keys: Keys, letter_id: str, timeout_s: float) -> RequeueResult:
    """Runs a dead letter again. Waits at most `timeout_s` for its answer, in blocking reads on the connection.

    Deletes the letter if it is answered, or has become a new dead letter. Otherwise it stays.

    Raises:
        RedisUnreachableError: the letter stays, and may have been added to its lane.
    """
    request_id = secrets.token_hex(16)
    outcome, ref = await dead_letters.requeue(connection, keys, letter_id, request_id, int(timeout_s * 1000))
    if ref is None:
        return RequeueResult(outcome, PROBLEMS[outcome])
    result = await _wait_for_reply(connection, keys.reply(request_id), timeout_s)
    if result.code == NO_ANSWER:
        await producer.cancel(connection, keys, [ref], ())
    newest = await dead_letters.read(connection, keys, NUM_NEWEST)
    # A letter that was given up again has become a new dead letter, so the old one is deleted, too.
    if not result.problem or any(letter.request_id == request_id for letter in newest):
        await dead_letters.purge(connection, keys, [letter_id])
    return result


async def _wait_for_reply(connection: RedisConnection, key: str, timeout_s: float) -> RequeueResult:
    """Waits for the reply under a Redis key."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while (left_s := deadline - asyncio.get_running_loop().time()) > 0:
        data = await connection.pop(key, left_s)
        if data is None:
            continue
        try:
            reply = decode_reply(data)
        except CodecError as error:
            return RequeueResult("unreadable reply", f"the reply is unreadable: {error}")
        if isinstance(reply, Failure):
            code = reply.code if reply.code in _KNOWN_CODES else UNKNOWN_ERROR
            return RequeueResult(code, f"{reply.code}: {reply.message}")
        return RequeueResult(ANSWERED, "")
    return RequeueResult(NO_ANSWER, PROBLEMS[NO_ANSWER])
