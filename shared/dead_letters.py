"""Entries that were given up because engines died of them: a stream that commits write, and people read and mend."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from shared import scripts
from shared.keys import Keys
from shared.messages import Ref
from shared.connection import Link

_MOST_DIGITS = 19
_STREAM_ID = re.compile(r"\d{1,19}-\d{1,19}")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One of them. `error` is what its caller was told; times are Redis' clock, in ms; a long `body` was not kept."""

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


async def read(link: Link, keys: Keys, most: int) -> list[DeadLetter]:
    """Returns the last ones, newest first."""
    return [_parsed(raw) for raw in await link.call("XREVRANGE", keys.dead, "+", "-", "COUNT", most)]


async def count(link: Link, keys: Keys) -> int:
    """Returns how many there are."""
    found: int = await link.call("XLEN", keys.dead)
    return found


async def find(link: Link, keys: Keys, letter_id: str) -> DeadLetter | None:
    """Returns the one with that id."""
    if not _STREAM_ID.fullmatch(letter_id):
        return None
    found = await link.call("XRANGE", keys.dead, letter_id, letter_id)
    return _parsed(found[0]) if found else None


async def requeue(link: Link, keys: Keys, letter_id: str, request_id: str, budget_ms: int) -> tuple[str, Ref | None]:
    """Puts a copy of one into its lane, as a request of its own with `budget_ms` to its deadline. The letter stays.

    Returns `ok` and where the copy is; `gone` when there is none with that id, `no body` when its body was too long to
    be kept, or `unreadable` when it is none that a worker wrote.
    """
    if not _STREAM_ID.fullmatch(letter_id):
        return "gone", None
    names = [keys.backlog, keys.dead, *keys.lanes]
    outcome, *where = await link.run(scripts.REQUEUE, names, [letter_id, request_id, budget_ms])
    if not where:
        return outcome.decode(), None
    entry_id, lane, inputs, cost = where
    return outcome.decode(), Ref(lane, entry_id, inputs, cost)


async def purge(link: Link, keys: Keys, letter_ids: Sequence[str]) -> int:
    """Deletes those with these ids; returns how many there were."""
    ids = [each for each in letter_ids if _STREAM_ID.fullmatch(each)]
    gone: int = await link.call("XDEL", keys.dead, *ids) if ids else 0
    return gone


async def purge_all(link: Link, keys: Keys) -> int:
    """Deletes all of them; returns how many there were."""
    gone: int = await link.call("XTRIM", keys.dead, "MAXLEN", 0)
    return gone


def _parsed(raw: tuple[bytes, list[bytes]]) -> DeadLetter:
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
    """What is in Redis is untrusted: what is no number counts as 0."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else 0
