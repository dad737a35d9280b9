"""Entry point of `redbatch up`: checks the settings, opens the port and runs the cluster."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import structlog
from setproctitle import setproctitle

from api.settings import GatewaySettings
from gpuworker.model_spec import ModelLoadError, parse_model
from gpuworker.settings import WorkerSettings
from redbatch.exit_codes import report_failure, report_misuse
from redbatch.up.child_spec import SettingValues, with_up_defaults
from redbatch.up.cluster import Cluster, ClusterSize
from redbatch.up.data_dir import DataDir, DataDirError
from redbatch.up.local_redis import LocalRedisError
from redbatch.up.memory import default_redis_bytes
from redbatch.up.redis_check import RedisRefusedError
from shared.process.listener import ListenError, listen, raise_open_file_limit
from shared.process.settings import read_settings

MAX_PRIVATE_REDIS = 16
MIN_REDIS_BYTES = 16_777_216
"""The least maxmemory of a private Redis."""


def run(
    size: ClusterSize, overrides: SettingValues, data_path: Path | None = None, max_redis_bytes: int | None = None
) -> int:
    """Runs a cluster until SIGINT or SIGTERM. Returns 0; 1 if it cannot run; 2 for misuse; 130 after a second signal.

    The cluster's private Redis keeps its data in `data_path`; None: it keeps none. It takes up to `max_redis_bytes` of
    memory; None: a part of the machine's. The setting `redis_shards` may be a number of private Redis.
    """
    setproctitle("redbatch up")
    # Its children log as they are set to; what this process says itself is not meant to have debug lines.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    settings = with_up_defaults(overrides)
    try:
        size = replace(size, private_redis=_take_num_private_redis(settings))
    except ValueError as error:
        return report_misuse(str(error))
    gateway, worker = read_settings(GatewaySettings, settings), read_settings(WorkerSettings, settings)
    try:
        _check_options(size.private_redis, gateway, data_path, max_redis_bytes)
        parse_model(worker.model, worker.model_revision)  # before anything starts: a worker would refuse it later
    except (ValueError, ModelLoadError) as error:
        return report_misuse(str(error))
    raise_open_file_limit()
    try:
        with listen(gateway.host, gateway.port) as listener, _open(data_path, size.private_redis) as data_dir:
            _check_admin_ports(gateway.admin_host, gateway.admin_port, size.gateways + size.workers)
            cluster = Cluster(size, settings, gateway, worker, data_dir, max_redis_bytes or default_redis_bytes())
            return asyncio.run(cluster.run(listener))
    except (ListenError, LocalRedisError, DataDirError) as error:
        return report_failure(str(error))
    except RedisRefusedError as error:
        return report_misuse(str(error))


def _take_num_private_redis(settings: SettingValues) -> int:
    """Returns how many private Redis to start; 0 if the settings name others. Takes a number out of `redis_shards`.

    Raises ValueError: the number is out of range, or there is a Redis too.
    """
    shards = settings.get("redis_shards", "").strip()
    if not shards.isdecimal():
        return 0 if shards or "redis_url" in settings else 1
    settings["redis_shards"] = ""  # it must not come from the environment
    if not 1 < int(shards) <= MAX_PRIVATE_REDIS:
        raise ValueError(f"--redis-shards: it takes a number of Redis from 2 to {MAX_PRIVATE_REDIS}, or URLs")
    if "redis_url" in settings:
        raise ValueError("--redis-url and --redis-shards exclude each other")
    return int(shards)


def _check_options(
    num_private_redis: int, gateway: GatewaySettings, data_path: Path | None, max_redis_bytes: int | None
) -> None:
    """Raises ValueError: an option is for the private Redis, and there is another one, or the reverse."""
    has_private_redis = num_private_redis > 0
    if data_path is not None and not has_private_redis:
        raise ValueError("--data-dir is for the private Redis of `up`: with --redis-url, that Redis keeps the data")
    if max_redis_bytes is not None and not has_private_redis:
        raise ValueError("--max-redis-bytes is for the private Redis of `up`: with --redis-url, set its maxmemory")
    if max_redis_bytes is not None and max_redis_bytes < num_private_redis * MIN_REDIS_BYTES:
        raise ValueError(f"--max-redis-bytes: {num_private_redis} Redis need {num_private_redis * MIN_REDIS_BYTES}")
    if gateway.job_durability == "aof" and has_private_redis and data_path is None:
        raise ValueError("--job-durability aof: the private Redis keeps nothing on disk: add --data-dir DIR")
    if gateway.job_durability == "replicas" and has_private_redis:
        raise ValueError("--job-durability replicas: the private Redis has no replica: use --redis-url")


def _open(data_path: Path | None, num_shards: int) -> AbstractContextManager[DataDir | None]:
    return nullcontext() if data_path is None else DataDir(data_path, num_shards)


def _check_admin_ports(host: str, first: int, count: int) -> None:
    """Raises ListenError: a process would not get its fixed admin port, and would start again and again."""
    last = first + count - 1
    for port in range(first, last + 1) if first else ():
        try:
            listen(host, port).close()
        except (ListenError, OverflowError):  # the latter: there is no such port
            raise ListenError(
                f"admin port {port} is not free: {count} processes take the ports {first} to {last}; choose another "
                "first one with --admin-port (0 picks free ones)"
            ) from None
