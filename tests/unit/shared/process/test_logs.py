"""Logs: JSON lines on stdout."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog

from shared.process.logs import configure_logging


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    """Restores the process-wide state."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


def logged(capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Returns the lines that were logged, each of which must be JSON."""
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def test_a_line_is_json_with_time_level_message_and_service(capfd: pytest.CaptureFixture[str]) -> None:
    """These four come first, the time is ISO in UTC, and the event's other fields follow."""
    configure_logging("gateway", "info")
    structlog.get_logger().info("served", inputs=3)
    (line,) = logged(capfd)
    assert list(line) == ["ts", "level", "msg", "service", "inputs"]
    assert datetime.fromisoformat(line["ts"]).tzinfo == UTC
    assert (line["level"], line["msg"], line["service"], line["inputs"]) == ("info", "served", "gateway", 3)


def test_the_standard_library_comes_the_same_way(capfd: pytest.CaptureFixture[str]) -> None:
    """Lines of uvicorn and other libraries have the same form, and appear once."""
    logging.getLogger("uvicorn").addHandler(logging.StreamHandler())
    configure_logging("worker", "info")
    logging.getLogger("uvicorn.error").warning("port %d", 80, extra={"peer": "x"})
    (line,) = logged(capfd)
    assert (line["level"], line["msg"], line["service"], line["peer"]) == ("warning", "port 80", "worker", "x")


def test_a_lookup_of_a_name_that_was_cancelled_is_not_logged(capfd: pytest.CaptureFixture[str]) -> None:
    """While the name of Redis cannot be resolved, each attempt would leave an error of the event loop."""
    configure_logging("worker", "info")
    error = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    asyncio_logger = logging.getLogger("asyncio")
    asyncio_logger.error("Future exception was never retrieved\nfuture: <Future>", exc_info=error)
    asyncio_logger.error("Future exception was never retrieved", exc_info=OSError("another"))
    asyncio_logger.error("Task exception was never retrieved", exc_info=error)
    assert [line["msg"][:4] for line in logged(capfd)] == ["Futu", "Task"]


def test_the_level_holds_for_both(capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing is written below the level."""
    configure_logging("worker", "warning")
    structlog.get_logger().info("no")
    logging.getLogger("any").info("no")
    structlog.get_logger().warning("yes")
    assert [line["msg"] for line in logged(capfd)] == ["yes"]


def test_tracebacks_show_no_values(capfd: pytest.CaptureFixture[str]) -> None:
    """A traceback is one field, without the local variables, which may hold a client's text."""
    configure_logging("worker", "info")
    text = "what the client wrote".upper()
    try:
        int(len(text) / 0)
    except ZeroDivisionError:
        structlog.get_logger().exception("failed")
    (line,) = logged(capfd)
    assert "ZeroDivisionError" in line["exception"]
    assert text not in line["exception"]


def test_values_without_a_json_form_do_not_break_the_line(capfd: pytest.CaptureFixture[str]) -> None:
    """A log call never raises, whatever its values are."""
    configure_logging("worker", "info")
    structlog.get_logger().info("odd", value={1, 2}, raw=b"x")
    (line,) = logged(capfd)
    assert line["value"] == "{1, 2}"


UNCAUGHT = """
import threading
from shared.process.logs import configure_logging, log_uncaught_exceptions
configure_logging('worker', 'info')
log_uncaught_exceptions()
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
[][0]
"""


def test_uncaught_exceptions_are_a_record_each() -> None:
    """In a thread and in the main program, which then ends with exit code 1 and writes nothing else."""
    ended = subprocess.run([sys.executable, "-P", "-c", UNCAUGHT], capture_output=True, timeout=30, check=False)
    records = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [each["exception"].rpartition("\n")[2].partition(":")[0] for each in records] == [
        "ZeroDivisionError",
        "IndexError",
    ]
    assert {(each["level"], each["msg"]) for each in records} == {("critical", "unexpected exception")}
    assert (ended.returncode, ended.stderr) == (1, b"")


def run_with_terminal(program: str) -> str:
    """Runs a program whose stdout is a terminal, and returns its output."""
    master, terminal = os.openpty()
    subprocess.run([sys.executable, "-P", "-c", program], stdout=terminal, timeout=30, check=True)
    os.close(terminal)
    output = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while data := os.read(master, 65_536):
            output += data
    os.close(master)
    return output.decode().replace("\r\n", "\n")


PROGRAM = (
    "import structlog; from shared.process.logs import configure_logging\n"
    "configure_logging('worker', 'info'{})\n"
    "structlog.get_logger().warning('late\\x1b[2J\\x9b', left_s=0.5)"
)


def test_on_a_terminal_lines_are_for_people() -> None:
    """Time, level, message and fields, as `redbatch up` shows them, with control characters escaped; or JSON."""
    line = run_with_terminal(PROGRAM.format(""))
    assert re.fullmatch(r"\d\d:\d\d:\d\d warning late\\u001b\[2J\\u009b left_s=0.5\n", line)
    line = run_with_terminal(PROGRAM.format(", 'json'"))
    assert json.loads(line)["msg"] == "late\x1b[2J\x9b"
    assert line.isascii()


def test_text_is_possible_without_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    """A traceback follows its line; lines of libraries have the same form."""
    configure_logging("worker", "info", "text")
    try:
        int("x")
    except ValueError:
        structlog.get_logger().exception("failed", part="disk")
    logging.getLogger("any").warning("port %d", 80)
    first, *trace, last = capfd.readouterr().out.splitlines()
    assert first[8:] == " error   failed part=disk"
    assert (trace[0], trace[-1]) == (
        "Traceback (most recent call last):",
        "ValueError: invalid literal for int() with base 10: 'x'",
    )
    assert last[8:] == " warning port 80"


@pytest.mark.parametrize(
    "fields",
    [
        {"event": "Redis answers again"},
        {"event": "cannot claim", "reason": "Redis did not answer (TimeoutError): try again."},
        {"event": "request failed", "message": "Redis is out of reach: try again."},
        {"event": "submit failed", "exception": "Traceback: RedisUnreachableError"},
    ],
    ids=["message", "reason", "answer", "exception"],
)
def test_lines_about_redis_say_where_it_is(fields: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    """Other lines do not."""
    configure_logging("worker", "info", "json", "redis.example:6380")
    structlog.get_logger().warning(**fields)
    structlog.get_logger().warning("the engine died")
    first, second = logged(capfd)
    assert first["redis"] == "redis.example:6380"
    assert "redis" not in second


def test_a_closed_log_does_not_stop_the_process(tmp_path: Path) -> None:
    """A process whose log is no longer read goes on, logging from structlog and from the standard library."""
    program = (
        "import logging, os, structlog; from shared.process.logs import configure_logging\n"
        "reading, writing = os.pipe(); os.dup2(writing, 1); os.close(writing); os.close(reading)\n"
        "configure_logging('worker', 'info')\n"
        "structlog.get_logger().info('one'); logging.getLogger('any').warning('two')\n"
        "os.write(2, b'went on')"
    )
    result = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=tmp_path, stderr=subprocess.PIPE, timeout=30, check=False
    )
    assert (result.returncode, result.stderr) == (0, b"went on")


def test_a_signal_handler_may_log(tmp_path: Path) -> None:
    """A signal in the middle of a line neither blocks nor raises: a drain may begin there."""
    program = (
        "import os, signal, structlog; from shared.process import logs\n"
        "logs.configure_logging('worker', 'info'); log = structlog.get_logger()\n"
        "signal.signal(signal.SIGUSR1, lambda *_: log.info('inner'))\n"
        "write = logs.os.write\n"
        "def interrupted(fd, data):\n"
        "    logs.os.write = write; os.kill(os.getpid(), signal.SIGUSR1); return write(fd, data)\n"
        "logs.os.write = interrupted; log.info('outer')"
    )
    result = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=tmp_path, stdout=subprocess.PIPE, timeout=30, check=True
    )
    assert sorted(json.loads(line)["msg"] for line in result.stdout.splitlines()) == ["inner", "outer"]
