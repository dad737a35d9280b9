"""Which requests may share an entry, and its bounds."""

from __future__ import annotations

from typing import Any

import pytest

from api.dialects.request import InferenceRequest
from api.dispatch.coalescing import MAX_CHARS, CoalescingLoad, EntryBounds, entry_bounds, may_share
from api.settings_groups import EntryLimits
from api.tenants import Tenant
from shared.keys import BULK
from shared.long_entries import is_long, min_long_tokens
from shared.messages import EMBED_ALL
from shared.tenants import Quota

LIMITS = EntryLimits(max_inputs=32, max_requests=16, min_per_worker=4)


def load(num_requests: int, num_workers: int = 1, vector_bytes: int = 1_536) -> CoalescingLoad:
    """Returns the load of workers with large batches."""
    return CoalescingLoad(num_requests, num_workers, vector_bytes, min_long_tokens(16_384), 64)


@pytest.mark.parametrize(
    ("given", "expected"),
    [(load(7), 1), (load(8), 2), (load(32), 8), (load(32, num_workers=2), 4), (load(1_000), 16)],
)
def test_each_worker_has_several_entries(given: CoalescingLoad, expected: int) -> None:
    """At least four of the requests in flight."""
    assert entry_bounds(LIMITS, given).requests == expected


@pytest.mark.parametrize("unknown", [load(1_000, num_workers=0), load(1_000, vector_bytes=0)])
def test_nothing_is_shared_while_the_workers_are_unknown(unknown: CoalescingLoad) -> None:
    """Without a ready worker, or before the first has reported its vectors."""
    assert entry_bounds(LIMITS, unknown) == EntryBounds(0, 0, 0)


def test_the_vectors_of_an_entry_are_bounded() -> None:
    """64 KiB, so that its replies are small ones."""
    assert entry_bounds(LIMITS, load(1_000, vector_bytes=16_384)).inputs == 4


@pytest.mark.parametrize(("max_batch_tokens", "max_batch_size"), [(512, 64), (512, 32), (16_384, 8), (2, 2), (64, 1)])
def test_no_shared_entry_is_long(max_batch_tokens: int, max_batch_size: int) -> None:
    """Workers would run it after all short ones; the tokens are estimated, and may be twice as many."""
    given = CoalescingLoad(1_000, 1, 8, min_long_tokens(max_batch_tokens), max_batch_size)
    bounds = entry_bounds(LIMITS, given)
    assert not is_long(2 * bounds.tokens, bounds.inputs, given.min_long_tokens, max_batch_size)
    assert bounds.inputs <= LIMITS.max_inputs


def request(*inputs: str, **fields: Any) -> InferenceRequest:  # noqa: ANN401 - any field of a request
    """Returns a request of texts."""
    return InferenceRequest(inputs, 1_000, **fields)


@pytest.mark.parametrize(
    "given", [request("a"), request("a", "b", "c", "d"), request("a" * MAX_CHARS), request("a", tenant=Tenant("one"))]
)
def test_small_requests_may_share_entries(given: InferenceRequest) -> None:
    """Those of up to four short texts."""
    assert may_share(given)


@pytest.mark.parametrize(
    "given",
    [
        request("a", "b", "c", "d", "e"),
        request("a" * (MAX_CHARS + 1)),
        request("a", op=EMBED_ALL),
        request("a", partial=True),
        request("a", indices=(3,)),
        request("a", lane=BULK),
        request("a", tenant=Tenant("one", Quota(tokens_per_s=5.0))),
        request("a", tenant=Tenant("one", Quota(daily_tokens=100))),
    ],
)
def test_others_have_their_own_entries(given: InferenceRequest) -> None:
    """They would make short ones wait, have their own errors, or exceed a quota together."""
    assert not may_share(given)
