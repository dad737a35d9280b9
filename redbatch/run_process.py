"""`redbatch gateway` and `redbatch worker`: `python -m api` and `python -m gpuworker` with flags."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from redbatch.exit_codes import report_misuse
from redbatch.up.run_file import find_running_ups
from redbatch.variables import ineffective_variables


def run_gateway(overrides: Mapping[str, str], listen_fd: int | None) -> int:
    """Runs a gateway to its end and returns its exit code. `listen_fd` is the descriptor of an inherited listener."""
    try:
        from api.__main__ import main
    except ModuleNotFoundError as error:
        return _not_installed(error, "gateway")
    listen = None if listen_fd is None else socket.socket(fileno=listen_fd)
    return main(_with_redis_of_up(overrides), listen, ineffective_variables(os.environ, "gateway"))


def run_worker(overrides: Mapping[str, str]) -> int:
    """Runs a worker to its end and returns its exit code."""
    try:
        from gpuworker.__main__ import main
    except ModuleNotFoundError as error:
        return _not_installed(error, "worker")
    return main(_with_redis_of_up(overrides), ineffective_variables(os.environ, "worker"))


def _with_redis_of_up(overrides: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the settings with the Redis of the only running `redbatch up`, unless they name one."""
    running = [] if "redis_url" in overrides else find_running_ups()
    return {**overrides, "redis_url": running[0].redis_url} if len(running) == 1 else overrides


def _not_installed(error: ModuleNotFoundError, process: str) -> int:
    return report_misuse(f"{error}: install what a {process} needs with pip install -e '.[{process}]' in the checkout")
