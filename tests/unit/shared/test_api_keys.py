"""API keys as they are read from Redis."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from shared.api_keys import KEYS_PER_TURN, read_all
from shared.process.tasks import cancel_and_wait

NUM_KEYS = 10 * KEYS_PER_TURN


class KeysOnly:
    """A connection to a Redis that has keys, of which every second is none."""

    async def call(self, *_command: str) -> list[bytes]:
        """Returns all of them, the latest first."""
        flat: list[bytes] = []
        for number in reversed(range(NUM_KEYS)):
            names = {"key_id": f"{number:016x}", "tenant": "", "name": ""}
            key = {**names, "digest": "0" * 64, "created_ms": number, "scopes": ["embed"]}
            flat += [b"", json.dumps(key).encode() if number % 2 else b"{}"]
        return flat


async def test_many_keys_do_not_hold_up_what_else_runs() -> None:
    """The event loop has turns while they are read."""
    turns = 0

    async def run() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(run())
    keys = await read_all(cast("Any", KeysOnly()))
    await cancel_and_wait([running])
    assert [key.created_ms for key in keys] == [*range(1, NUM_KEYS, 2)]
    assert turns >= NUM_KEYS / KEYS_PER_TURN
