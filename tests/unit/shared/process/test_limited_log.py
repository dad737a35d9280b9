"""Log lines that may come by the thousand."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading

import pytest
from structlog.contextvars import bound_contextvars
from structlog.testing import capture_logs

from shared.process import limited_log
from shared.process.limited_log import LimitedLog
from shared.process.log_limit import MAX_KINDS
from tests.waiting import wait_until

DETAILS = {"request_id": "r-1"}


def test_the_first_line_of_a_kind_has_all_fields_and_one_stands_for_the_others() -> None:
    """That one has the level, the event and the fields of the kind, the number of lines, and the time."""
    limited = LimitedLog()
    with capture_logs() as lines:
        for _ in range(1_000):
            limited.write(logging.WARNING, "refused", lambda: DETAILS, code="full")
        limited.write(logging.WARNING, "refused", lambda: DETAILS, code="late")
        limited.flush()
        limited.flush()
    common = {"event": "refused", "log_level": "warning"}
    assert lines == [
        {**common, "code": "full", "request_id": "r-1"},
        {**common, "code": "late", "request_id": "r-1"},
        {**common, "code": "full", "repeated": 999, "in_s": lines[2]["in_s"]},
    ]


def test_lines_about_different_redis_are_counted_separately() -> None:
    """The context of a task names its Redis; that of a request makes no separate kind."""
    limited = LimitedLog()
    with capture_logs() as lines:
        for number in range(4):
            with bound_contextvars(redis=f"host-{number % 2}", shard=number % 2, trace_id=number):
                limited.write(logging.WARNING, "no answer")
        limited.flush()
    assert [(each["redis"], each["shard"], each.get("repeated", 0)) for each in lines] == [
        ("host-0", 0, 0),
        ("host-1", 1, 0),
        ("host-0", 0, 1),
        ("host-1", 1, 1),
    ]


def test_kinds_without_end_do_not_fill_the_log() -> None:
    """Beyond the bound of kinds, one line says how many lines are missing."""
    limited = LimitedLog()
    with capture_logs() as lines:
        for number in range(3 * MAX_KINDS):
            limited.write(logging.INFO, "refused", code=number)
        limited.flush()
    assert len(lines) == MAX_KINDS + 1
    assert lines[-1]["repeated"] == 2 * MAX_KINDS


async def test_the_count_comes_without_a_further_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the interval, and from any thread; details of lines that are not written are not computed."""
    monkeypatch.setattr(limited_log, "INTERVAL_S", 0.05)
    limited, described = LimitedLog(), list[dict[str, int]]()

    def describe() -> dict[str, int]:
        described.append({})
        return described[-1]

    def write() -> None:
        for _ in range(100):
            limited.write(logging.ERROR, "failed", describe)

    with capture_logs() as lines:
        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        await wait_until(
            lambda: sum(1 + line.get("repeated", 0) - ("repeated" in line) for line in lines) == 400, "all are counted"
        )
    assert len(described) == sum("repeated" not in line for line in lines)


def test_what_was_counted_is_written_at_the_exit_of_the_process() -> None:
    """Three lines of a kind, and the end: the first line, and one that stands for two."""
    program = """
import logging
from shared.process.limited_log import LimitedLog
limited = LimitedLog()
for _ in range(3):
    limited.write(logging.WARNING, "refused", code="full")
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    lines = [line for line in (result.stdout + result.stderr).splitlines() if "refused" in line]
    assert len(lines) == 2
    assert "repeated" not in lines[0]
    assert "2" in lines[1].split("repeated", 1)[1]
