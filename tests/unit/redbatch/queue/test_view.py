"""The state of a queue as text and JSON."""

from __future__ import annotations

import io
import json
import os
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from redbatch.queue.command import show_queue
from redbatch.queue.view import as_json, as_text
from redbatch.state_printer import state_printer
from redbatch.up.run_file import RunFile, write_run_file
from shared.messages import Heartbeat
from shared.producer import QueueStats
from tests.users import as_user

BEAT = Heartbeat("gpu-1", "host-1", 7, "cuda:0", "minilm", 384, "ready", 21_000.0, 256, 64, 40_000)
BUSY = QueueStats(100_000, b"1", 5_000, 90_000, (290, 10), 256, (99_000, 98_500), 99_900, (BEAT,), bytes=12_345_678)
EMPTY = QueueStats(100_000, b"1", 0, 0, (0, 0), 0, (None, None), 0, ())


def text_of(stats: QueueStats) -> str:
    """Returns the state as a terminal shows it."""
    output = io.StringIO()
    Console(file=output, width=120).print(as_text("minilm", stats))
    return output.getvalue()


def test_json_has_all_values_with_units() -> None:
    """JSON is one line, with numbers as numbers, and with units in the names of ages and durations."""
    line = as_json("minilm", BUSY)
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
    }
    assert (worker["worker"], worker["holds_entries"], worker["begun_entries"], worker["up_s"]) == (
        "gpu-1",
        256,
        64,
        60,
    )


def test_text_shows_numbers_and_workers() -> None:
    """The text shows waiting entries, entries in flight, the oldest age, and the entries of each worker."""
    text = text_of(BUSY)
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
    ):
        assert expected in text


def test_an_empty_queue_without_workers_says_so() -> None:
    """Without entries and workers, the text says so, and how to start a worker."""
    text = text_of(EMPTY)
    assert "no entries" in text
    assert "redbatch worker" in text


@pytest.mark.parametrize("in_json", [True, False])
def test_without_a_terminal_states_follow_each_other(in_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal, each state is printed below the previous one."""
    with state_printer(Console(), partial(as_text, "minilm"), partial(as_json, "minilm"), in_json=in_json) as show:
        show(EMPTY)
        show(BUSY)
    output = capsys.readouterr().out
    assert output.count("minilm") >= 2
    assert len(output.splitlines()) == 2 or not in_json


@pytest.mark.redis
def test_the_running_up_is_found(
    redis_url: str,
    queue_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without a URL, the queue of this user's `up` is shown, from a real Redis."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    write_run_file(RunFile(os.getpid(), "http://127.0.0.1:1", as_user(redis_url, "ops"), queue_name))
    assert show_queue(None, None, in_json=True, watch=False) == 0
    state = json.loads(capsys.readouterr().out)
    assert (state["queue"], state["waiting_entries"], state["workers"]) == (queue_name, 0, [])


def test_without_up_and_url_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a running `up` and a URL, the exit code is 1 and the error line names --redis-url."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert show_queue(None, None, in_json=False, watch=False) == 1
    assert "--redis-url" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["redis://:secret@127.0.0.1:1/0", "http://:secret@host"])
def test_an_unreachable_redis_is_one_line(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """If Redis is unreachable, the error is one line without the password of the URL."""
    assert show_queue(url, "minilm", in_json=False, watch=False) == 1
    error = capsys.readouterr().err
    assert "secret" not in error
    assert len(error.splitlines()) == 1
