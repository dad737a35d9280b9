"""The pause between attempts."""

from __future__ import annotations

import asyncio

import pytest

from shared.process.backoff import Backoff


async def test_pauses_double_up_to_the_maximum_and_start_again_after_a_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses are 1, 2, 4, 5, 5 for a first of 1 s and a maximum of 5 s; after a reset the next is 1 s."""
    pauses: list[float] = []

    async def record(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", record)
    backoff = Backoff(1.0, 5.0)
    for _ in range(5):
        await backoff.wait()
    backoff.reset()
    await backoff.wait()
    assert pauses == [1.0, 2.0, 4.0, 5.0, 5.0, 1.0]
