"""What is known of the error that answers a requeued letter."""

from __future__ import annotations

from typing import Any, cast

import pytest

from shared import dead_letters
from shared.codec import encode_reply
from shared.dead_letter_requeue import UNKNOWN_ERROR, requeue_and_wait
from shared.keys import Keys
from shared.messages import Failure, Ref


class FakeConnection:
    """A connection on which a failure with this code arrives."""

    def __init__(self, code: str) -> None:
        self.code = code

    async def pop(self, *_: object) -> bytes:
        """Returns the failure."""
        return encode_reply(Failure("again", 0, 1, self.code, "no"))


@pytest.mark.parametrize(
    ("sent", "code"), [("input_failed", "input_failed"), ("x" * 100_000, UNKNOWN_ERROR), ("a secret", UNKNOWN_ERROR)]
)
async def test_only_known_codes_are_codes(monkeypatch: pytest.MonkeyPatch, sent: str, code: str) -> None:
    """Redis is untrusted, and the code goes to the log. People see what came."""

    async def requeue(*_: object) -> tuple[str, Ref]:
        return "ok", Ref(0, b"1-0", 1, 1)

    async def read(*_: object) -> list[Any]:
        return []

    monkeypatch.setattr(dead_letters, "requeue", requeue)
    monkeypatch.setattr(dead_letters, "read", read)
    connection = cast("Any", FakeConnection(sent))
    result = await requeue_and_wait(connection, Keys("q"), "1-0", 1.0)
    assert (result.code, result.problem) == (code, f"{sent}: no")
