"""Log lines of Redis as records."""

from __future__ import annotations

import json

import pytest

from redbatch.up.console import format_log_line
from redbatch.up.redis_log import redis_record

NOW = "2026-01-02T03:04:05+00:00"
SOCKET = "/run/a/redis.sock"


@pytest.mark.parametrize(
    "line",
    [
        "7:C 25 Nov 2026 19:43:16.054 # oO0OoO0OoO0Oo Redis is starting oO0OoO0OoO0Oo",
        "7:C 25 Nov 2026 19:43:16.054 # Redis version=7.0.15, bits=64, commit=00000000, just started",
        "7:C 25 Nov 2026 19:43:16.054 # Configuration loaded",
        "7:M 25 Nov 2026 19:43:16.055 # Server initialized",
        "7:signal-handler (1795635798) Received SIGTERM scheduling shutdown...",
        "7:M 25 Nov 2026 19:43:18.120 # User requested shutdown...",
        "7:M 25 Nov 2026 19:43:18.123 # Valkey is now ready to exit, bye bye...",
        "",
    ],
)
def test_start_and_stop_are_left_out(line: str) -> None:
    """A server writes these each time, as warnings."""
    assert redis_record(line, NOW, SOCKET) is None


def test_a_warning_is_a_record() -> None:
    """It has the fields of the other processes' records, and the console formats it as theirs."""
    record = redis_record("7:M 25 Nov 2026 19:43:16.055 # MISCONF: no space left on the disk", NOW, SOCKET)
    assert record is not None
    assert list(json.loads(record)) == ["ts", "level", "msg", "service", "redis"]
    assert format_log_line(record) == f"03:04:05 warning MISCONF: no space left on the disk redis={SOCKET}"


def test_a_line_of_another_form_is_an_error() -> None:
    """A wrong option and a crash are reported so; no line of these is lost."""
    record = redis_record("""Bad directive "bogus" """.strip(), NOW, SOCKET)
    assert record is not None
    assert (json.loads(record)["level"], json.loads(record)["msg"]) == ("error", 'Bad directive "bogus"')
