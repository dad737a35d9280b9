"""Runs a gateway with a fault, to show that a campaign finds it."""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from api.dialects.base import BaseDialect
from api.dialects.native import Native
from api.http.connection_limiter import ConnectionLimiter
from api.http.protocol import GatewayProtocol

MODULE = "tests.fuzz.faulty_gateway"
VARIABLE = "FUZZ_FAULT"
BYTE = b"\\"
LEAK_BYTES = 2**19

_leaked: list[bytes] = []


def _in_native_parse(fault: Callable[[bytes], None]) -> None:
    """Has `fault` called with each body of /embed, before it is parsed."""
    for_body = Native.for_body

    def faulty(self: Native, body: bytes) -> BaseDialect:
        fault(body)
        return for_body(self, body)

    Native.for_body = faulty  # type: ignore[method-assign]


def _raise(body: bytes) -> None:
    if BYTE in body:
        raise RuntimeError("a bug")


def _log(body: bytes) -> None:
    if BYTE in body:
        structlog.get_logger().error("a bug that no client sees")


def _crash(body: bytes) -> None:
    if BYTE in body:
        os._exit(3)


def _leak(body: bytes) -> None:
    _leaked.append(body + os.urandom(LEAK_BYTES))


def _read_leniently() -> None:
    """Has the parser accept what has two readings, as servers do that request smuggling works on."""
    init = GatewayProtocol.__init__

    def lenient(self: GatewayProtocol, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - those of the protocol
        init(self, *args, **kwargs)
        self.parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_chunked_length=True, lenient_transfer_encoding=True
        )

    GatewayProtocol.__init__ = lenient  # type: ignore[method-assign]


def _forget_connections() -> None:
    ConnectionLimiter.remove = lambda *_args: None  # type: ignore[method-assign]


FAULTS: Mapping[str, Callable[[], None]] = {
    "raises": lambda: _in_native_parse(_raise),
    "logs": lambda: _in_native_parse(_log),
    "crashes": lambda: _in_native_parse(_crash),
    "leaks": lambda: _in_native_parse(_leak),
    "reads leniently": _read_leniently,
    "forgets connections": _forget_connections,
}
"""By name: what puts the fault into this process."""


def main() -> None:
    """Runs the gateway."""
    FAULTS[os.environ[VARIABLE]]()
    runpy.run_module("api", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
