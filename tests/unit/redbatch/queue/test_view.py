"""The state of a queue as text and JSON."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from redbatch.queue.command import show_queues
from redbatch.queue.view import as_json, as_text
from redbatch.queue_target import QueueTarget
from redbatch.state_printer import state_printer
from redbatch.up.run_file import Announcement, RunFile
from shared.activity import Activity, bucket_of
from shared.messages import FAILING, PREDICT, READY, Heartbeat
from shared.producer import QueueStats
from shared.queue_view import QueueView
from tests.users import as_user

ACTIVITY = Activity(10.0, requests=123, errors=2, batches=4, inputs=50, latencies=((bucket_of(12), 90), (40, 10)))
BEAT = Heartbeat(
    "gpu-1",
    "host-1",
    7,
    "cuda:0",
    "minilm",
    384,
    "ready",
    21_000.0,
    256,
    64,
    40_000,
    activity=ACTIVITY,
    max_batch_size=64,
)
BUSY = QueueStats(100_000, b"1", 5_000, 90_000, (290, 10), 256, (99_000, 98_500), 99_900, (BEAT,), bytes=12_345_678)
EMPTY = QueueStats(100_000, b"1", 0, 0, (0, 0), 0, (None, None), 0, ())


def text_of(*queues: QueueView, width: int = 120) -> str:
    """Returns the state as a terminal of a width shows it."""
    output = io.StringIO()
    Console(file=output, width=width).print(as_text(queues))
    return output.getvalue()


@pytest.fixture
def running_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redis_url: str, queue_name: str) -> Iterator[None]:
    """A running `up` with the Redis and the queue of this test."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    run_file = RunFile(os.getpid(), "http://127.0.0.1:1", as_user(redis_url, "ops"), queue_name)
    announcement = Announcement(run_file)
    yield
    announcement.withdraw()


def test_json_has_all_values_with_units() -> None:
    """JSON is one line, with numbers as numbers, and with units in the names of ages and durations."""
    line = as_json([QueueView("minilm", replace(BUSY, dead_letters=2, open_jobs=3))])
    assert "\n" not in line
    state = json.loads(line)
    (worker,) = state.pop("workers")
    assert state == {
        "queue": "minilm",
        "waiting_entries": 44,
        "in_flight_entries": 256,
        "entries_by_lane": {"interactive": 290, "bulk": 10},
        "inputs": 5_000,
        "tokens": 90_000,
        "bytes": 12_345_678,
        "oldest_age_ms": 1_500,
        "oldest_age_ms_by_lane": {"interactive": 1_000, "bulk": 1_500},
        "open_jobs": 3,
        "dead_letters": 2,
        "redis_eviction_policy": None,
        "requests": 123,
        "requests_per_s": 12.3,
        "inputs_per_s": 5.0,
        "batch_size": 12.5,
        "p50_ms": pytest.approx(12, rel=0.1),
        "p99_ms": pytest.approx(512, rel=0.1),
        "errors": 2,
        "window_s": 10.0,
    }
    assert (worker["worker"], worker["holds_entries"], worker["begun_entries"], worker["up_s"]) == (
        "gpu-1",
        256,
        64,
        60,
    )
    assert (worker["batch_size"], worker["max_batch_size"]) == (12.5, 64)


def test_text_shows_numbers_and_workers() -> None:
    """The text shows waiting entries, entries in flight, the oldest age, and the entries of each worker."""
    text = text_of(QueueView("minilm", BUSY))
    for expected in (
        "44 entries",
        "256 entries",
        "290 interactive, 10 bulk",
        "5,000 inputs",
        "12,345,678 bytes",
        "1.5 s",
        "gpu-1",
        "cuda:0",
        "21,000",
        "60 s",
        "12.3 requests/s, 5.0 inputs/s",
        "12.5 inputs on average",
        "p50 12 ms, p99 470 ms",
        "failed     2 entries in 10 s; 504s and refusals: /metrics of the gateways",
    ):
        assert expected in text


def test_a_function_has_no_tokens() -> None:
    """Each of its inputs counts as one, which is no token; a model of texts has both."""
    function = replace(BUSY, bytes=0, workers=(replace(BEAT, ops=(PREDICT,)),))
    text = text_of(QueueView("f", function))
    assert ("running  inputs/s" in text, "token" in text) == (True, False)
    text = text_of(QueueView("minilm", replace(BUSY, bytes=0)))
    assert ("about 90,000 tokens" in text, "tokens/s" in text) == (True, True)


@pytest.mark.parametrize(
    ("state", "retry_s", "shown"),
    [(FAILING, 4.6, "failing: OSError, next try in 5 s"), (READY, 0.0, "tries again: OSError")],
)
def test_a_worker_whose_model_fails_says_how(state: str, retry_s: float, shown: str) -> None:
    """Also while it tries whether the model works again: it takes one entry, and is not ready as others are."""
    beat = replace(BEAT, state=state, failing="OSError", retry_s=retry_s)
    assert shown in text_of(QueueView("q", replace(BUSY, workers=(beat,))), width=160)


@pytest.mark.parametrize(
    ("last_ms", "silent_s", "shown"), [(97_100, 2.9, "ready"), (96_400, 3.6, "silent for 4 s, was ready")]
)
def test_a_worker_without_heartbeats_is_silent(last_ms: int, silent_s: float, shown: str) -> None:
    """It may be gone, and its row remains until its heartbeat expires."""
    queue = QueueView("q", BUSY, {BEAT.worker: last_ms})
    text = text_of(queue, width=160)
    assert (shown in text, "silent" in text) == (True, "silent" in shown)
    assert json.loads(as_json([queue]))["workers"][0]["silent_s"] == silent_s


def test_workers_with_different_models_are_a_line() -> None:
    """A queue whose workers have different models says so, alone and among others, with what to do."""
    other = replace(BEAT, worker="gpu-2", model="someone/minilm", dim=768, revision="2")
    one, mixed = (replace(BEAT, revision="1"),), (replace(BEAT, revision="1"), other)
    for workers, expected in ((one, False), (mixed, True)):
        queue = QueueView("minilm", replace(BUSY, workers=workers))
        for text in (text_of(queue), text_of(queue, QueueView("other", EMPTY))):
            words = " ".join(text.split())
            assert ("minilm: minilm (384 dimensions), someone/minilm (768 dimensions): " in words) == expected
            assert ("seem to have different models" in words, "--queue NAME" in words) == (expected, expected)


def test_an_empty_queue_without_workers_says_so() -> None:
    """Without entries and workers, the text says so, and how to start a worker."""
    text = text_of(QueueView("minilm", EMPTY))
    assert "no entries" in text
    assert "redbatch worker" in text


@pytest.mark.parametrize("in_json", [True, False])
def test_without_a_terminal_states_follow_each_other(in_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal, each state is printed below the previous one."""
    with state_printer(Console(), as_text, as_json, in_json=in_json) as show:
        show([QueueView("minilm", EMPTY)])
        show([QueueView("minilm", BUSY)])
    output = capsys.readouterr().out
    assert output.count("minilm") >= 2
    assert len(output.splitlines()) == 2 or not in_json


def test_several_queues_are_a_table() -> None:
    """Each queue is a row of a table, whole in 80 columns; the rates of two workers are added up."""
    two = replace(BUSY, workers=(BEAT, replace(BEAT, worker="gpu-2")))
    text = text_of(QueueView("all-mpnet-base", two), QueueView("empty", EMPTY), width=80)
    head, *rows, footer, more = text.splitlines()
    assert head.split() == ["queue", "waiting", "oldest", "requests/s", "batch", "p50", "p99", "failed", "workers"]
    assert [row.split() for row in rows] == [
        ["all-mpnet-base", "44", "1.5", "s", "24.6", "12.5", "12", "ms", "470", "ms", "4", "2"],
        ["empty", "0", "-", "0.0", "-", "-", "-", "0", "0"],
    ]
    assert "The last 10 s, as workers saw them; `failed` counts entries." in footer
    assert "504s included, are in /metrics of the gateways." in more


def test_without_any_queue_it_says_how_to_start_one() -> None:
    """A Redis without queues is no empty output."""
    assert "redbatch worker" in text_of()


@pytest.mark.redis
@pytest.mark.usefixtures("running_up")
def test_the_running_up_is_found(queue_name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a URL, the queue of this user's `up` is shown, from a real Redis, before a worker has announced it."""
    assert show_queues(QueueTarget(None), in_json=True, watch=False) == 0
    states = {state["queue"]: state for state in map(json.loads, capsys.readouterr().out.splitlines())}
    assert (states[queue_name]["waiting_entries"], states[queue_name]["workers"]) == (0, [])


def test_without_up_and_url_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a running `up` and a URL, the exit code is 1 and the error line names --redis-url."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert show_queues(QueueTarget(None), in_json=False, watch=False) == 1
    assert "--redis-url" in capsys.readouterr().err


def test_an_unreachable_redis_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """If Redis is unreachable, the error is one line without the password of the URL."""
    target = QueueTarget("redis://:secret@127.0.0.1:1/0", "minilm")
    assert show_queues(target, in_json=False, watch=False) == 1
    error = capsys.readouterr().err
    assert "secret" not in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("queues", [1, 2])
def test_an_eviction_policy_that_loses_data_is_shown_once(queues: int) -> None:
    """With what to do; of a Redis that evicts nothing, or does not report its policy, nothing is said."""
    for policy, shown in (("allkeys-lru", 1), ("noeviction", 0), ("", 0)):
        stats = replace(EMPTY, eviction_policy=policy)
        text = " ".join(text_of(*(QueueView(f"q{n}", stats) for n in range(queues))).split())
        assert text.count("set its maxmemory-policy to noeviction, which is allkeys-lru now") == shown
        assert text.count("maxmemory") == shown
        assert json.loads(as_json([QueueView("q", stats)]))["redis_eviction_policy"] == (policy or None)
