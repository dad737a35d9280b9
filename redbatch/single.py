"""`redbatch gateway` and `redbatch worker`: the same as `python -m api` and `python -m gpuworker`, with flags."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from shared.process.settings import EXIT_CONFIGURATION, complain


def run_gateway(given: Mapping[str, str], listen_fd: int | None) -> int:
    """Runs a gateway to its end and returns its exit code. `listen_fd` is a listening socket that it inherited."""
    try:
        from api.__main__ import main
    except ModuleNotFoundError as error:
        return _not_installed(error, "gateway")
    listen = None if listen_fd is None else socket.socket(fileno=listen_fd)
    return main(given, listen)


def run_worker(given: Mapping[str, str]) -> int:
    """Runs a worker to its end and returns its exit code."""
    try:
        from gpuworker.__main__ import main
    except ModuleNotFoundError as error:
        return _not_installed(error, "worker")
    return main(given)


def _not_installed(error: ModuleNotFoundError, process: str) -> int:
    complain(f"{error}; pip install 'redbatch[{process}]' brings what a {process} needs")
    return EXIT_CONFIGURATION
