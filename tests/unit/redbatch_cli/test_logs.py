"""Logs: JSON lines on stdout."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import structlog

from redbatch.logs import configure_logging


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Puts the process-wide state back."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


def logged(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The lines that were logged, each of which must be JSON."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_line_is_json_with_time_level_message_and_service(capsys: pytest.CaptureFixture[str]) -> None:
    """These four come first, the time is ISO in UTC, and the event's own fields follow."""
    configure_logging("gateway", "info")
    structlog.get_logger().info("served", inputs=3)
    (line,) = logged(capsys)
    assert list(line) == ["ts", "level", "msg", "service", "inputs"]
    assert datetime.fromisoformat(line["ts"]).tzinfo == UTC
    assert (line["level"], line["msg"], line["service"], line["inputs"]) == ("info", "served", "gateway", 3)


def test_the_standard_library_comes_the_same_way(capsys: pytest.CaptureFixture[str]) -> None:
    """What uvicorn and other libraries log has the same form, and comes once."""
    logging.getLogger("uvicorn").addHandler(logging.StreamHandler())
    configure_logging("worker", "info")
    logging.getLogger("uvicorn.error").warning("port %d", 80, extra={"peer": "x"})
    (line,) = logged(capsys)
    assert (line["level"], line["msg"], line["service"], line["peer"]) == ("warning", "port 80", "worker", "x")


def test_the_level_holds_for_both(capsys: pytest.CaptureFixture[str]) -> None:
    """Below the level nothing is written."""
    configure_logging("worker", "warning")
    structlog.get_logger().info("no")
    logging.getLogger("any").info("no")
    structlog.get_logger().warning("yes")
    assert [line["msg"] for line in logged(capsys)] == ["yes"]


def test_tracebacks_show_no_values(capsys: pytest.CaptureFixture[str]) -> None:
    """A traceback is there, as one field; the local variables, which may hold a client's text, are not."""
    configure_logging("worker", "info")
    text = "what the client wrote".upper()
    try:
        int(len(text) / 0)
    except ZeroDivisionError:
        structlog.get_logger().exception("failed")
    (line,) = logged(capsys)
    assert "ZeroDivisionError" in line["exception"]
    assert text not in line["exception"]


def test_values_without_a_json_form_do_not_break_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A log call never raises for what it is handed."""
    configure_logging("worker", "info")
    structlog.get_logger().info("odd", value={1, 2}, raw=b"x")
    (line,) = logged(capsys)
    assert line["value"] == "{1, 2}"
