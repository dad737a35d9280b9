"""Dead letters: a stream of entries given up because engines died of them. Commits write it, people read and fix it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shared import scripts
from shared.connection import RedisConnection
from shared.dead_letter_ids import is_stream_id
from shared.keys import Keys
from shared.messages import Ref

LETTERS_PER_CALL = 100
"""Letters that a call lists: Redis reads them with their bodies, and other calls wait until it has."""

_MAX_DIGITS = 19


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter. `error` is what its client received; times are Redis' clock, in ms.

    `body` is None in lists, and if it was too long to be kept.
    """

    letter_id: str
    lane: str
    entry_id: str
    request_id: str
    inputs: int
    attempts: int
    worker: str
    error: str
    submitted_ms: int
    died_ms: int
    body: bytes | None


async def read(connection: RedisConnection, keys: Keys, limit: int) -> list[DeadLetter]:
    """Returns the last `limit` dead letters, newest first, without their bodies."""
    letters: list[DeadLetter] = []
    while (num_left := limit - len(letters)) > 0:
        before = letters[-1].letter_id if letters else ""
        found = await connection.run(scripts.DEAD_LIST, [keys.dead], [before, min(num_left, LETTERS_PER_CALL)])
        letters += map(_parse_letter, found)
        if len(found) < LETTERS_PER_CALL:
            break
    return letters


async def count(connection: RedisConnection, keys: Keys) -> int:
    """Returns the number of dead letters."""
    length: int = await connection.call("XLEN", keys.dead)
    return length


async def find(connection: RedisConnection, keys: Keys, letter_id: str) -> DeadLetter | None:
    """Returns the dead letter with this id."""
    if not is_stream_id(letter_id):
        return None
    found = await connection.call("XRANGE", keys.dead, letter_id, letter_id)
    return _parse_letter(found[0]) if found else None


async def requeue(
    connection: RedisConnection, keys: Keys, letter_id: str, request_id: str, budget_ms: int
) -> tuple[str, Ref | None]:
    """Adds a copy of a dead letter to its lane, as a new request with `budget_ms` to its deadline. The letter stays.

    Returns `ok` and where the copy is; `gone` if there is no letter with this id, `no body` if its body was too long to
    be kept, or `unreadable` if no worker wrote it.
    """
    if not is_stream_id(letter_id):
        return "gone", None
    names = [keys.backlog, keys.dead, *keys.lanes]
    outcome, *location = await connection.run(scripts.REQUEUE, names, [letter_id, request_id, budget_ms])
    if not location:
        return outcome.decode(), None
    entry_id, lane, inputs, cost = location
    return outcome.decode(), Ref(lane, entry_id, inputs, cost)


async def purge(connection: RedisConnection, keys: Keys, letter_ids: Sequence[str]) -> int:
    """Deletes the letters with these ids; returns how many there were."""
    ids = [each for each in letter_ids if is_stream_id(each)]
    num_deleted: int = await connection.call("XDEL", keys.dead, *ids) if ids else 0
    return num_deleted


async def purge_all(connection: RedisConnection, keys: Keys) -> int:
    """Deletes all letters; returns how many there were."""
    num_deleted: int = await connection.call("XTRIM", keys.dead, "MAXLEN", 0)
    return num_deleted


def _parse_letter(raw: tuple[bytes, list[bytes]]) -> DeadLetter:
    letter_id, flat = raw
    fields = dict(zip(flat[::2], flat[1::2], strict=False))

    def text(name: bytes) -> str:
        return fields.get(name, b"").decode("utf-8", "replace")

    entry_id = text(b"entry")
    return DeadLetter(
        letter_id=letter_id.decode(),
        lane=text(b"lane"),
        entry_id=entry_id,
        request_id=text(b"id"),
        inputs=_number(text(b"n")),
        attempts=_number(text(b"attempts")),
        worker=text(b"worker"),
        error=text(b"error"),
        submitted_ms=_number(entry_id.partition("-")[0]),
        died_ms=_number(letter_id.decode().partition("-")[0]),
        body=fields.get(b"body"),
    )


def _number(text: str) -> int:
    """Parses a number from Redis, which is untrusted: anything else counts as 0."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else 0
