"""A request of which a part was remembered, when a new revision of the model comes in that moment."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any, cast

from api.dialects.vectors import rows_of
from api.dialects.request import Asked
from api.dispatch.cache import Cache, Cached
from api.dispatch.dispatcher import Answered
from shared.cache import Kept
from shared.messages import Vectors


class Changing:
    """A dispatcher whose workers were ready with one revision when asked, and answer with another."""

    def __init__(self) -> None:
        self.asked: list[tuple[Asked, str]] = []
        ready = SimpleNamespace(state="ready", revision="old")
        self.monitor = SimpleNamespace(workers=lambda: (ready,))

    async def answer(self, asked: Asked, request_id: str = "") -> Answered:
        """Answers with vectors of the new revision, each the number 2."""
        self.asked.append((asked, request_id))
        parts = [Vectors("", at, 1, 1, struct.pack("<f", 2.0), revision="new") for at in range(len(asked.inputs))]
        return Answered(parts)


class HalfFull:
    """A cache that knows the first input."""

    async def find(self, names: list[bytes]) -> list[Kept | None]:
        """Returns a vector of the old revision, the number 1, and nothing for all others."""
        return [Kept(0, 3, struct.pack("<f", 1.0)), *(None for _ in names[1:])]

    def keep(self, vectors: dict[bytes, object]) -> None:
        """Sees that nothing of another revision is kept."""
        assert vectors == {}


async def test_what_was_remembered_is_not_mixed_with_a_new_revision() -> None:
    """All of it is computed then, under an id of its own: a late answer to the first try must not fit."""
    dispatcher = Changing()
    cached = Cached(cast("Any", dispatcher), cast("Cache", HalfFull()))
    answered = await cached.answer(Asked(("a", "b", "c"), 1_000), "the client's")
    assert [float(row[0]) for row in rows_of(answered) if row is not None] == [2.0, 2.0, 2.0]
    (first, first_id), (second, second_id) = dispatcher.asked
    assert (first.inputs, second.inputs) == (("b", "c"), ("a", "b", "c"))
    assert (first_id, second_id) == ("the client's", "")
    assert second.timeout_ms <= first.timeout_ms
