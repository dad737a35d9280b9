"""The state of a queue of several shards: the sum, and each shard."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from redbatch.queue.view import as_json, as_text
from shared.activity import Activity, bucket_of
from shared.messages import Heartbeat
from shared.producer import QueueStats
from shared.queue_view import QueueView, ShardView, merge_shards, queue_as_dict

ACTIVITY = Activity(10.0, requests=120, errors=2, batches=4, inputs=50, latencies=((bucket_of(12), 100),))
BEAT = Heartbeat("gpu-1", "host-1", 7, "cuda:0", "minilm", 384, "ready", 21_000.0, 256, 64, 40_000, activity=ACTIVITY)
FAST = QueueStats(
    100_000,
    b"1",
    5_000,
    90_000,
    (290, 10),
    256,
    (99_000, None),
    99_900,
    (BEAT,),
    bytes=100,
    dead_letters=1,
    open_jobs=2,
)
SLOW_ACTIVITY = Activity(10.0, requests=30, errors=1, batches=1, inputs=50, latencies=((bucket_of(500), 100),))
SLOW_BEAT = replace(BEAT, tokens_per_s=1_000.0, holds=4, begun=2, started_ms=1_040_000, activity=SLOW_ACTIVITY)
OTHER_BEAT = replace(BEAT, worker="gpu-2", tokens_per_s=500.0)
SLOW = QueueStats(
    1_100_000,
    b"2",
    7,
    10,
    (3, 2),
    1,
    (1_094_000, 1_099_000),
    1_099_000,
    (SLOW_BEAT, OTHER_BEAT),
    bytes=11,
    dead_letters=4,
    open_jobs=8,
)
"""Its clock is 1,000 s ahead."""

PLACES = ("unix:///tmp/redbatch-redis-qk2v_5yd/redis.sock", "unix:///tmp/redbatch-redis-4t_x1l9m/redis.sock")
SHARDS = (
    ShardView(PLACES[0], QueueView("minilm", FAST, {"gpu-1": 95_000})),
    ShardView(PLACES[1], QueueView("minilm", SLOW, {"gpu-1": 1_099_500, "gpu-2": 1_098_000})),
)
SILENT = (SHARDS[0], ShardView(PLACES[1], None, "Connection refused"))


def text_of(*queues: QueueView) -> str:
    """Returns the state as a terminal of 80 columns shows it."""
    output = io.StringIO()
    Console(file=output, width=80).print(as_text(queues))
    return output.getvalue()


def test_entries_and_ages_are_those_of_all_shards() -> None:
    """Numbers are sums, and the oldest entry is the oldest by the clock of its Redis."""
    stats = merge_shards("minilm", SHARDS).stats
    assert (stats.inputs, stats.tokens, stats.bytes, stats.by_lane, stats.pending) == (
        5_007,
        90_010,
        111,
        (293, 12),
        257,
    )
    assert (stats.ages_ms, stats.oldest_age_ms) == ((6_000, 1_000), 6_000)


def test_jobs_and_dead_letters_are_those_of_all_shards() -> None:
    """Each shard has its own; an empty lane has no oldest entry, and so no age."""
    state = queue_as_dict(merge_shards("minilm", SHARDS))
    assert (state["open_jobs"], state["dead_letters"]) == (10, 5)
    assert state["oldest_age_ms_by_lane"] == {"interactive": 6_000, "bulk": 1_000}
    assert [each["open_jobs"] for each in state["shards"]] == [2, 8]
    assert queue_as_dict(QueueView("minilm", FAST))["oldest_age_ms_by_lane"] == {"interactive": 1_000, "bulk": None}


def test_a_worker_of_several_shards_is_there_once() -> None:
    """With its sums, its age, and the time since its last heartbeat to any shard."""
    queue = merge_shards("minilm", SHARDS)
    one, other = sorted(queue.stats.workers, key=lambda beat: beat.worker)
    assert (one.tokens_per_s, one.holds, one.begun) == (22_000.0, 260, 66)
    assert (queue.silent_s(one), queue.silent_s(other)) == (0.5, 2.0)
    assert queue.stats.now_ms - one.started_ms == 60_000
    activity = queue.activity
    assert activity.requests_per_s == pytest.approx(12 + 3 + 12)
    assert activity.errors == 2 + 1 + 2
    assert activity.batch_size == pytest.approx(150 / 9)
    assert activity.p99_ms == pytest.approx(500, rel=0.1)


def test_a_policy_that_evicts_on_any_shard_is_a_warning() -> None:
    """Whichever shard has it."""
    shards = [SHARDS[0], ShardView("b", QueueView("minilm", replace(SLOW, eviction_policy="allkeys-lru")))]
    for each in (shards, shards[::-1]):
        assert "allkeys-lru" in text_of(merge_shards("minilm", each))


def test_the_text_has_the_sum_and_each_shard_in_80_columns() -> None:
    """Each shard is a row of a table, with where it is above."""
    text = text_of(merge_shards("minilm", SHARDS))
    for expected in (
        "Queue minilm: 2 of 2 shards",
        "48 entries",
        "257 entries",
        f"shard 0    {PLACES[0]}",
        f"shard 1    {PLACES[1]}",
        "22,000",
    ):
        assert expected in text
    rows = [line.split() for line in text.splitlines()]
    assert ["shard", "waiting", "oldest", "requests/s", "batch", "p50", "p99", "failed", "workers"] in rows
    assert ["0", "44", "1.0", "s", "12.0", "12.5", "12", "ms", "12", "ms", "2", "1"] in rows


def test_a_shard_that_does_not_answer_is_named() -> None:
    """In the state of its queue, and among several queues; the numbers are those of the others."""
    queue = merge_shards("minilm", SILENT)
    for text in (text_of(queue), text_of(queue, queue._replace(name="other"))):
        words = " ".join(text.split())
        assert f"shard 1 {PLACES[1]} is left out: Connection refused" in words
        assert words.count("is left out") == 1
    assert queue.stats.by_lane == FAST.by_lane


def test_json_has_the_shards_too() -> None:
    """With the same numbers as their sum, and the reason why one does not answer."""
    state = json.loads(as_json([merge_shards("minilm", SHARDS)]))
    assert [each["shard"] for each in state["shards"]] == [0, 1]
    assert [each["redis"] for each in state["shards"]] == list(PLACES)
    for name in ("waiting_entries", "in_flight_entries", "inputs", "tokens", "bytes"):
        assert state[name] == sum(each[name] for each in state["shards"])
    assert [each["workers"] for each in state["shards"]] == [1, 2]
    assert len(state["workers"]) == 2
    state = json.loads(as_json([merge_shards("minilm", SILENT)]))
    assert [each["error"] for each in state["shards"]] == [None, "Connection refused"]
    assert "waiting_entries" not in state["shards"][1]
