"""The history of queues: a ring of samples, delivered as columns, and encoded once for all viewers."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from api import metrics
from api.console.history import KEPT_S, MAX_SAMPLES, SAMPLE_S, QueueHistory
from api.console.history_sampler import HistorySampler
from shared.activity import Activity, ActivitySummary, summarize

BUSY = summarize([Activity(30.0, 60, 3, 10, 90, ((10, 98), (40, 2)))])
IDLE = summarize([])


def test_columns_have_what_workers_did() -> None:
    """Of each queue that is served now, one number for each time; null where it is not known."""
    history = QueueHistory()
    history.add(10.0, {"old": BUSY}, {})
    history.add(12.0, {"old": BUSY, "minilm": None}, {})
    history.add(14.5, {"minilm": BUSY}, {})
    history.add(16.0, {"minilm": IDLE}, {})
    columns = history.as_dict(["minilm"])
    assert columns["times_s"] == [-6.0, -4.0, -1.5, 0.0]
    assert columns["queues"] == [
        {
            "queue": "minilm",
            "requests_per_s": [None, None, 2.0, 0.0],
            "p50_ms": [None, None, pytest.approx(BUSY.p50_ms, abs=0.001), None],
            "p99_ms": [None, None, pytest.approx(BUSY.p99_ms, abs=0.001), None],
            "failed": [None, None, 3, 0],
        }
    ]


def test_errors_are_counted_between_samples() -> None:
    """By code: the first sample has those since the start, and a counter that begins again loses none later."""
    history = QueueHistory()
    history.add(0.0, {}, {"queue_full": 2})
    history.add(59.0, {}, {"queue_full": 2})
    history.add(61.0, {}, {"queue_full": 5, "no_worker": 1})
    history.add(63.0, {}, {"queue_full": 1})
    history.add(65.0, {}, {"queue_full": 2})
    assert history.as_dict([])["errors"] == [
        {"code": "no_worker", "last_minute": 1, "counts": [0, 0, 1, 0, 0]},
        {"code": "queue_full", "last_minute": 4, "counts": [2, 0, 3, 0, 1]},
    ]


def test_the_ring_is_bounded() -> None:
    """In time and in number: also if samples come too early, or too late."""
    history = QueueHistory()
    for index in range(2 * MAX_SAMPLES):
        history.add(index * SAMPLE_S, {"minilm": BUSY}, {"timeout": 1})
    columns = history.as_dict(["minilm"])
    assert len(columns["times_s"]) == len(columns["queues"][0]["failed"]) == MAX_SAMPLES
    assert (columns["times_s"][0], columns["errors"]) == (-KEPT_S, [])
    history.add(10 * KEPT_S, {}, {})
    assert history.as_dict([])["times_s"] == [0.0]


def test_there_may_be_no_sample_yet() -> None:
    """A page that asks a gateway which has just started gets empty columns."""
    columns = QueueHistory().as_dict([])
    assert (columns["times_s"], columns["queues"], columns["errors"]) == ([], [], [])


async def test_an_answer_is_encoded_once_for_each_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Viewers get the same columns with the age of the last sample, until there is another."""
    now, state, encoded = [100.0], {"b": BUSY, "a": None}, []
    monkeypatch.setattr(metrics, "error_totals", lambda: {"timeout": 7})
    as_dict = QueueHistory.as_dict

    def counted(history: QueueHistory, queues: list[str]) -> dict[str, Any]:
        encoded.append(queues)
        return as_dict(history, queues)

    monkeypatch.setattr(QueueHistory, "as_dict", counted)

    def activity(name: str) -> ActivitySummary | None:
        return state[name]

    sampler = HistorySampler(lambda: sorted(state), activity, lambda: now[0])
    assert orjson.loads(sampler.as_json())["times_s"] == []
    await sampler.sample()
    now[0] += 0.5
    answers = [orjson.loads(sampler.as_json()) for _ in range(3)]
    assert [each["age_s"] for each in answers] == [0.5] * 3
    assert [each["queue"] for each in answers[0]["queues"]] == ["a", "b"]
    assert answers[0]["errors"] == [{"code": "timeout", "last_minute": 7, "counts": [7]}]
    assert len(encoded) == 2


def test_errors_are_summed_over_queues() -> None:
    """The metrics count them by queue and code."""
    before = metrics.error_totals().get("test_code", 0)
    metrics.ERRORS.labels("a", "test_code").inc()
    metrics.ERRORS.labels("", "test_code").inc(2)
    try:
        assert metrics.error_totals()["test_code"] == before + 3
    finally:
        for queue in ("a", ""):
            metrics.ERRORS.remove(queue, "test_code")
