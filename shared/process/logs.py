"""Logs on stdout, from structlog and from the standard library alike: a JSON object a line, or lines for a terminal.

No caller passes a text or a vector to a logger. Tracebacks are plain, without the local variables that would hold them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Literal

import structlog

from shared.process.log_text import format_event, printable

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

STDOUT = 1
LEADING_FIELDS = ("ts", "level", "msg", "service")
FIELDS_ABOUT = ("event", "reason", "message", "exception")
"""Fields that say what a line is about."""

LogFormat = Literal["auto", "json", "text"]


def write_line(line: str) -> None:
    """Writes a line to stdout, without a lock or a buffer: a signal handler may log in the middle of another line.

    Never raises. A log reader that is gone must not keep a process from draining. Control characters are escaped: lines
    may quote what users sent.
    """
    data = f"{printable(line)}\n".encode()
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(STDOUT, data) :]


class StdoutLogger:
    """Receives finished lines from structlog: a method for each level."""

    def msg(self, message: str) -> None:
        """Writes one line."""
        write_line(message)

    log = debug = info = warning = warn = error = exception = critical = fatal = msg


class StdoutHandler(logging.Handler):
    """Receives records from the standard library."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one line."""
        try:
            write_line(self.format(record))
        except Exception:  # noqa: BLE001 - as in every handler: a record that cannot be formatted is reported, not raised
            self.handleError(record)


def is_no_abandoned_lookup(record: logging.LogRecord) -> bool:
    """Returns whether a record of asyncio is anything but the failure of a lookup of a name that was cancelled.

    uvloop cannot cancel getaddrinfo(3): while the name of Redis cannot be resolved, each attempt to connect that ran
    out of time would leave an error with a traceback.
    """
    error = record.exc_info[1] if record.exc_info else None
    return not (isinstance(error, socket.gaierror) and record.msg.startswith("Future exception was never retrieved"))


def configure_logging(service: str, level: str, log_format: LogFormat = "auto", redis: str = "") -> None:
    """Sends all logs of this process to stdout, with ts (ISO, UTC), level, msg, service and the rest.

    A further call replaces the previous configuration.

    Args:
        service: the name of this process in each line.
        level: debug, info, warning or error.
        log_format: JSON lines, or text for people; auto: text if stdout is a terminal.
        redis: host and port of Redis, for lines about it.
    """

    def name_service(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event.setdefault("service", service)
        event.pop("color_message", None)  # a copy of uvicorn's message, for terminals
        return event

    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        name_service,
    ]
    is_text = log_format == "text" or (log_format == "auto" and os.isatty(STDOUT))
    finish: list[Processor] = [
        structlog.processors.format_exc_info,
        *([partial(_name_redis, redis)] if redis else []),
        structlog.processors.EventRenamer("msg"),
        _order_fields,
        _to_text if is_text else structlog.processors.JSONRenderer(serializer=_dumps),
    ]
    threshold = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*common, *finish],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=lambda *_names: StdoutLogger(),
        cache_logger_on_first_use=False,
    )
    _route_standard_library(common, finish, threshold)


def log_uncaught_exceptions() -> None:
    """Logs exceptions that nothing catches, in the main thread or another, as one record each.

    As Python prints them, their lines would lie between the records of other processes.
    """
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        structlog.get_logger().critical("unexpected exception", exc_info=(kind, error, trace))


def _log_uncaught_in_thread(hook: threading.ExceptHookArgs) -> None:
    if not issubclass(hook.exc_type, SystemExit):  # which only ends the thread
        _log_uncaught(hook.exc_type, hook.exc_value or hook.exc_type(), hook.exc_traceback)


def warn_of_variables(variables: Mapping[str, str]) -> None:
    """Logs environment variables that have no effect, with what to do instead; never their values."""
    for name, advice in variables.items():
        structlog.get_logger().warning("environment variable has no effect", variable=name, advice=advice)


def _route_standard_library(common: list[Processor], finish: list[Processor], threshold: int) -> None:
    handler = StdoutHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*common, structlog.stdlib.ExtraAdder()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *finish],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(threshold)
    logging.captureWarnings(capture=True)
    # Libraries with their own handlers would write every line twice, once in another form.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    asyncio_logger = logging.getLogger("asyncio")
    if is_no_abandoned_lookup not in asyncio_logger.filters:
        asyncio_logger.addFilter(is_no_abandoned_lookup)
    # uvicorn logs its start and stop in detail, which the gateway logs itself.
    logging.getLogger("uvicorn").setLevel(threshold if threshold <= logging.DEBUG else max(threshold, logging.WARNING))


def _order_fields(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Puts time, level, message and service at the start of the line, where people look for them."""
    first: EventDict = {key: event[key] for key in LEADING_FIELDS if key in event}
    return {**first, **event}


def _name_redis(address: str, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Adds the address of Redis to a line about it."""
    if any("Redis" in str(event.get(field, "")) for field in FIELDS_ABOUT):
        event.setdefault("redis", address)
    return event


def _to_text(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    return format_event(event)


def _dumps(event: EventDict, **_options: object) -> str:
    return json.dumps(event, ensure_ascii=False, separators=(",", ":"), default=repr)
