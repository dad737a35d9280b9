"""`redbatch gateway` and `redbatch worker`: `python -m api` and `python -m gpuworker` with flags."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping
from threading import Thread

import structlog

from api.settings import GatewaySettings
from gpuworker.settings import WorkerSettings
from redbatch.exit_codes import report_failure, report_misuse
from redbatch.up.run_file import NoUpError, RunFile, find_running_ups, find_up, wait_until_ended
from redbatch.variables import ineffective_variables
from shared.process.settings import flag_of, print_error, read_settings, variable_of
from shared.settings import QueueSettings

log = structlog.get_logger()

REDIS_SETTINGS = ("redis_url", "redis_shards")
"""Each names the Redis of a process."""


def run_gateway(overrides: Mapping[str, str], up: int | None, listen_fd: int | None) -> int:
    """Runs a gateway to its end and returns its exit code.

    Args:
        overrides: settings from the command line and the environment.
        up: the port of a running `redbatch up` whose Redis it uses.
        listen_fd: the descriptor of an inherited listener.
    """
    try:
        from api.__main__ import main
    except ModuleNotFoundError as error:
        return _not_installed(error, "gateway")
    listen = None if listen_fd is None else socket.socket(fileno=listen_fd)
    try:
        overrides = _with_redis_of_up(GatewaySettings, overrides, up)
    except NoUpError as error:
        return report_failure(str(error))
    return main(overrides, listen, ineffective_variables(os.environ, "gateway"))


def run_worker(overrides: Mapping[str, str], up: int | None) -> int:
    """Runs a worker to its end and returns its exit code. `up` is as in `run_gateway`."""
    try:
        from gpuworker.__main__ import main
    except ModuleNotFoundError as error:
        return _not_installed(error, "worker")
    try:
        overrides = _with_redis_of_up(WorkerSettings, overrides, up)
    except NoUpError as error:
        return report_failure(str(error))
    return main(overrides, ineffective_variables(os.environ, "worker"))


def _with_redis_of_up(
    settings_type: type[QueueSettings], overrides: Mapping[str, str], up: int | None
) -> Mapping[str, str]:
    """Returns the settings with the Redis of a running `redbatch up`, unless they name one, or none runs; says so.

    If that Redis is private, this process ends with that `up`. A port `up` overrides variables that name a Redis.
    Exits the process, as `read_settings` does, if there is no such `up` and another setting is invalid.

    Raises NoUpError: several run and none was chosen, none has the port `up`, or an option names a Redis too.
    """
    given = [name for name in REDIS_SETTINGS if name in overrides]
    if up is None and (given or not find_running_ups()):
        return overrides
    for name in given:
        if os.environ.pop(variable_of(name), None) != overrides[name]:
            raise NoUpError(f"--up finds the Redis of a running `redbatch up`: leave out {flag_of(name)}")
    others = {name: value for name, value in overrides.items() if name not in REDIS_SETTINGS}
    try:
        running = find_up(up)
    except NoUpError:
        read_settings(settings_type, others)  # a bad value is reported before the user chooses
        raise
    ends = ""
    if running.has_private_redis:
        Thread(target=_end_with, args=[running], name="end with up", daemon=True).start()
        ends = " and ends with it"
    print_error(f"joins your running `redbatch up` at {running.url}{ends}; --redis-url names another Redis")
    return others | running.redis_settings


def _end_with(up: RunFile) -> None:
    """Ends this process in order when a `redbatch up` ends, whose private Redis never comes back."""
    wait_until_ended(up)
    log.warning("the `redbatch up` that this process joined ends, and so does this process", url=up.url)
    os.kill(os.getpid(), signal.SIGTERM)


def _not_installed(error: ModuleNotFoundError, process: str) -> int:
    return report_misuse(f"{error}: install what a {process} needs with pip install -e '.[{process}]' in the checkout")
