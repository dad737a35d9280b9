"""Reading a body of lines: how much of it is parsed at a time."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from api.dispatch.size_limits import InputLimit
from api.fair_lock import FairLock
from api.jobs import line_stream
from api.jobs.inputs import JobInput
from api.jobs.ndjson import NdjsonReader
from api.memory_budget import HeldMemory, MemoryBudget
from api.settings import GatewaySettings
from api.tenants import ShareHolder

LIMIT = InputLimit(1_000_000, "max_input_bytes of the gateway")


class FakeRequest:
    """A request whose body arrives in these pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)
        self.scope: dict[str, object] = {"client": None, "state": {}}

    async def receive(self) -> dict[str, object]:
        """Returns the next piece."""
        return {"type": "http.request", "body": self._pieces.pop(0), "more_body": bool(self._pieces)}


async def read_chunks(*pieces: bytes) -> list[tuple[int, list[JobInput]]]:
    """Reads lines; returns the inputs that come at a time, each with how often the event loop has run before."""
    settings, budget = GatewaySettings(), MemoryBudget(2**30)
    state = SimpleNamespace(jobs=settings.jobs, limits=settings.requests, body_budget=budget, parse_lock=FairLock())
    reader, num_turns = NdjsonReader(1_000_000, 100_000, LIMIT), 0

    async def count_turns() -> None:
        nonlocal num_turns
        while True:
            num_turns += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count_turns())
    request = cast("Any", FakeRequest(*pieces))
    lines = line_stream.read_lines(request, {}, reader, cast("Any", state), HeldMemory(budget, ShareHolder("a")))
    chunks = [(num_turns, chunk) async for chunk in lines]
    counter.cancel()
    return chunks


async def test_a_piece_of_tiny_lines_is_parsed_in_slices() -> None:
    """Other tasks run after each 4 KiB, and all inputs without a text share one error."""
    chunks = await read_chunks(b'""\n' * 85_000)
    assert sum(len(chunk) for _, chunk in chunks) == 85_000
    assert max(len(chunk) for _, chunk in chunks) <= 4 * 1_024 // 3 + 1
    turns = [each for each, _ in chunks]
    assert all(later > earlier for earlier, later in pairwise(turns))
    assert len({id(each) for _, chunk in chunks for each in chunk}) == 1


async def test_memory_is_reserved_in_bytes() -> None:
    """A text takes as much as its characters need, which are more than a byte each in most languages."""
    settings, budget = GatewaySettings(), MemoryBudget(2**30)
    state = SimpleNamespace(jobs=settings.jobs, limits=settings.requests, body_budget=budget, parse_lock=FairLock())
    text = "\u6587" * 40_000
    request = cast("Any", FakeRequest(f'"{text}"\n'.encode(), b'"a"'))
    reader, reservation = NdjsonReader(10, 100_000, LIMIT), HeldMemory(budget, ShareHolder("a"))
    lines = line_stream.read_lines(request, {}, reader, cast("Any", state), reservation)
    sizes = [(chunk, budget.num_bytes) async for chunk in lines]
    assert [held >= 80_000 for chunk, held in sizes if chunk == [text]] == [True]


@pytest.mark.parametrize("cuts", [(), (1,), (16_384,), (16_383, 16_385, 40_000)])
async def test_slices_do_not_change_the_inputs(cuts: tuple[int, ...]) -> None:
    """However a body is cut, its lines are the same."""
    body = b"".join(b'"%d %s"\n' % (i, b"x" * (i % 900)) for i in range(200)) + b'"the last"'
    pieces = [body[start:stop] for start, stop in zip((0, *cuts), (*cuts, None), strict=True)]
    texts = [each for _, chunk in await read_chunks(*pieces) for each in chunk]
    assert texts == [*(f"{i} " + "x" * (i % 900) for i in range(200)), "the last"]
