"""A request with some cached vectors, when the model revision changes at that moment."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from api.dialects.request import InferenceRequest, InferenceResult
from api.dialects.vectors import rows_of
from api.dispatch.vector_cache import Cache, CachingDispatcher
from api.memory_budget import HeldMemory, MemoryBudget
from api.tenants import ShareHolder
from shared.cache import CachedVector
from shared.errors import OverloadedError
from shared.messages import Options, Vectors


class ChangingDispatcher:
    """A dispatcher whose workers were last seen with one revision, and answer with another."""

    def __init__(self) -> None:
        self.requests: list[tuple[InferenceRequest, str]] = []
        self.ready = [SimpleNamespace(state="ready", revision="old", normalizes=True)]

    async def answer(self, request: InferenceRequest, request_id: str = "", _memory: object = None) -> InferenceResult:
        """Returns vectors of the new revision, each with the only number 2."""
        self.requests.append((request, request_id))
        parts = [Vectors("", at, 1, 1, struct.pack("<f", 2.0), revision="new") for at in range(len(request.inputs))]
        return InferenceResult(parts)


def workers_of(dispatcher: ChangingDispatcher) -> Callable[[], list[Any]]:
    """Returns the function by which a gateway reads the workers of a dispatcher."""
    return lambda: dispatcher.ready


class PartialCache:
    """A cache that holds the vector of the first input."""

    async def find(self, cache_keys: list[bytes]) -> list[CachedVector | None]:
        """Returns a vector of the old revision with the only number 1, and None for all others."""
        return [CachedVector(0, 3, struct.pack("<f", 1.0)), *(None for _ in cache_keys[1:])]

    def store(self, vectors: dict[bytes, object]) -> None:
        """Checks that no vector of another revision is stored."""
        assert vectors == {}


async def test_cached_vectors_are_not_mixed_with_a_new_revision() -> None:
    """All vectors are computed with a new request id, so that a late reply to the first try does not match."""
    dispatcher = ChangingDispatcher()
    cached = CachingDispatcher(cast("Any", dispatcher), workers_of(dispatcher), cast("Cache", PartialCache()))
    result = await cached.answer(InferenceRequest(("a", "b", "c"), 1_000), "the client's")
    assert [float(row[0]) for row in rows_of(result) if row is not None] == [2.0, 2.0, 2.0]
    (first, first_id), (second, second_id) = dispatcher.requests
    assert (first.inputs, second.inputs) == (("b", "c"), ("a", "b", "c"))
    assert (first_id, second_id) == ("the client's", "")
    assert second.timeout_ms <= first.timeout_ms


class SteadyDispatcher(ChangingDispatcher):
    """A dispatcher whose workers have one revision, and cut the last input of each request."""

    async def answer(self, request: InferenceRequest, request_id: str = "", _memory: object = None) -> InferenceResult:
        """Returns vectors of the old revision."""
        self.requests.append((request, request_id))
        last = len(request.inputs) - 1
        parts = [
            Vectors("", at, 1, 1, struct.pack("<f", 2.0), tokens=(7,), revision="old", truncated=(0,) * (at == last))
            for at in range(last + 1)
        ]
        return InferenceResult(parts, truncated=[last])


class CutCache(PartialCache):
    """A cache that holds the vector of the second input, which was cut."""

    def __init__(self) -> None:
        self.stored: list[tuple[int, bool]] = []

    async def find(self, cache_keys: list[bytes]) -> list[CachedVector | None]:
        """Returns that vector, and None for all others."""
        vector = CachedVector(0, 3, struct.pack("<f", 1.0), truncated=True)
        return [vector if index == 1 else None for index in range(len(cache_keys))]

    def store(self, vectors: dict[bytes, Any]) -> None:
        """Keeps the tokens of what is stored, and whether it was cut."""
        self.stored += [(tokens, truncated) for tokens, _, truncated in vectors.values()]


async def test_cached_vectors_say_whether_their_inputs_were_cut() -> None:
    """The answer has the indices of all inputs that were cut, now or when their vector was stored."""
    dispatcher, cache = SteadyDispatcher(), CutCache()
    cached = CachingDispatcher(cast("Any", dispatcher), workers_of(dispatcher), cast("Cache", cache))
    result = await cached.answer(InferenceRequest(("a", "b", "c", "d"), 1_000))
    assert list(result.truncated) == [1, 3]
    [(request, _)] = dispatcher.requests
    assert (request.inputs, request.indices) == (("a", "c", "d"), (0, 2, 3))
    assert cache.stored == [(7, False), (7, False), (7, True)]


async def test_cached_vectors_count_as_memory() -> None:
    """Without memory for them, the request is refused, and nothing is computed for it."""
    dispatcher, budget = SteadyDispatcher(), MemoryBudget(7)
    cached = CachingDispatcher(cast("Any", dispatcher), workers_of(dispatcher), cast("Cache", CutCache()))
    with HeldMemory(budget, ShareHolder("b")) as other, HeldMemory(budget, ShareHolder("a")) as memory:
        assert other.grow(4)
        with pytest.raises(OverloadedError, match="max_in_flight_bytes"):
            await cached.answer(InferenceRequest(("a", "b"), 1_000), "", memory)
        assert dispatcher.requests == []
        budget.max_bytes = 9
        await cached.answer(InferenceRequest(("a", "b"), 1_000), "", memory)
        assert budget.num_bytes == 8


class RecordingCache(PartialCache):
    """An empty cache that records the keys of each request."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []

    async def find(self, cache_keys: list[bytes]) -> list[CachedVector | None]:
        """Returns None for all."""
        self.keys += cache_keys
        return [None] * len(cache_keys)

    def store(self, vectors: dict[bytes, Any]) -> None:
        """Stores nothing."""


@pytest.mark.parametrize(
    ("reported", "equal"),
    [([True], True), ([False], False), ([None], None), ([True, None], None)],
    ids=["it normalizes", "it does not", "an older worker", "also an older worker"],
)
async def test_the_default_of_normalize_is_what_the_model_does(reported: list[bool | None], equal: bool | None) -> None:
    """The vectors of /embed by default are those of /v1/embeddings, which sets the option, if the model normalizes."""
    dispatcher, cache = SteadyDispatcher(), RecordingCache()
    dispatcher.ready = [SimpleNamespace(state="ready", revision="old", normalizes=each) for each in reported]
    cached = CachingDispatcher(cast("Any", dispatcher), workers_of(dispatcher), cast("Cache", cache))
    for value in (None, True, False):
        await cached.answer(InferenceRequest(("a",), 1_000, options=Options(normalize=value)))
    default, yes, no = cache.keys
    assert (default == yes, default == no, yes == no) == (equal is True, equal is False, False)
    assert [each.options.normalize for each, _ in dispatcher.requests] == [None, True, False]
