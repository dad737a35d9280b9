"""`redbatch gateway` and `redbatch worker`: `python -m api` and `python -m gpuworker` with flags."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from redbatch.exit_codes import report_misuse
from redbatch.variables import ineffective_variables


def run_gateway(overrides: Mapping[str, str], listen_fd: int | None) -> int:
    """Runs a gateway to its end and returns its exit code. `listen_fd` is the descriptor of an inherited listener."""
    try:
        from api.__main__ import main
    except ModuleNotFoundError as error:
        return _not_installed(error, "gateway")
    listen = None if listen_fd is None else socket.socket(fileno=listen_fd)
    return main(overrides, listen, ineffective_variables(os.environ, "gateway"))


def run_worker(overrides: Mapping[str, str]) -> int:
    """Runs a worker to its end and returns its exit code."""
    try:
        from gpuworker.__main__ import main
    except ModuleNotFoundError as error:
        return _not_installed(error, "worker")
    return main(overrides, ineffective_variables(os.environ, "worker"))


def _not_installed(error: ModuleNotFoundError, process: str) -> int:
    return report_misuse(f"{error}: install what a {process} needs with pip install -e '.[{process}]' in the checkout")
