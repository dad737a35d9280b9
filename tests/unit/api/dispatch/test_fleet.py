"""What the heartbeats of all workers say together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.dispatch.admission import max_tokens
from api.dispatch.fleet import LongBacklog, find_gone, fleet_rate, long_backlog, sum_tenants
from shared.messages import MAX_TOKENS, Heartbeat
from shared.tenants import ActiveTenants


@pytest.mark.parametrize(
    ("rates", "expected"),
    [([], 0.0), ([0.0, 0.0], 0.0), ([100.0, 300.0], 400.0), ([100.0, 0.0, 300.0, 0.0], 800.0)],
)
def test_a_worker_of_unknown_rate_counts_with_the_mean_of_the_others(rates: list[float], expected: float) -> None:
    """Otherwise a fleet that grows under load would still refuse requests that it could answer."""
    assert fleet_rate(rates) == expected


def heartbeat(long_tokens: int, max_batch_tokens: int = 512, max_batch_size: int = 64) -> Heartbeat:
    """A ready worker that holds these tokens of long entries."""
    beat = Heartbeat("w", "h", 1, "cpu", "m", 384, "ready", 100.0, 1, 0, 0)
    return replace(beat, long_tokens=long_tokens, max_batch_tokens=max_batch_tokens, max_batch_size=max_batch_size)


def test_a_short_request_need_not_wait_for_the_long_entries_of_all_workers() -> None:
    """It is short if it is so for each worker, by its tokens and by its inputs."""
    backlog = long_backlog([heartbeat(8_000), heartbeat(1_000, max_batch_tokens=256), heartbeat(0, max_batch_size=32)])
    assert backlog == LongBacklog(9_000, 128, 32)
    assert [backlog.overtaken_tokens(*each) for each in ((127, 1), (128, 1), (15, 15), (15, 16))] == [
        9_000,
        0,
        9_000,
        0,
    ]
    assert max_tokens(100.0, 10.0, 9_000) == max_tokens(100.0, 10.0) + 9_000


def test_workers_that_report_no_limits_have_no_long_entries() -> None:
    """They are older, or still load: their entries count in full."""
    assert long_backlog([heartbeat(8_000, max_batch_tokens=0)]).overtaken_tokens(1, 1) == 0
    assert long_backlog([]).overtaken_tokens(1, 1) == 0
    assert max_tokens(0.0, 10.0, 9_000) == MAX_TOKENS


def test_the_anonymous_tenant_counts_once() -> None:
    """Its requests go to all shards; a named tenant is on one."""
    shards = [ActiveTenants(4.0, 3.0), ActiveTenants(1.0, 0.0), ActiveTenants(2.0, 2.0)]
    assert sum_tenants(shards) == ActiveTenants(6.0, 5.0)
    assert sum_tenants([]) == ActiveTenants()


@pytest.mark.parametrize(
    ("revisions", "is_gone"),
    [((), False), (("new",), True), (("new", "old"), False), (("new", ""), False), (("new", "newer"), True)],
)
def test_a_revision_is_gone_if_no_worker_has_it(revisions: tuple[str, ...], is_gone: bool) -> None:
    """One that still loads its model (it reports none) may have it, and so may one that starts soon, if none lives."""
    workers = [replace(heartbeat(0), revision=each) for each in revisions]
    error = find_gone("old", workers)
    assert (error is not None) == is_gone
    if error is not None:
        assert (error.code, "old" in error.message.split()) == ("revision_gone", False)
        assert all(each in error.message for each in revisions)
