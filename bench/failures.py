"""Errors of a measurement: a load, a cluster or a model that does not start, or a process that died."""

from __future__ import annotations

import subprocess

import psutil
import redis

from bench.child_process import ModuleError
from bench.cluster import ClusterError
from bench.wrk import GeneratorError
from redbatch.up.local_redis import LocalRedisError

FAILURES = (
    *(GeneratorError, ClusterError, ModuleError, LocalRedisError),
    *(psutil.Error, redis.RedisError, subprocess.SubprocessError, OSError),
)


def reason(error: BaseException) -> str:
    """Returns the message of an error, or its class name if the message is empty."""
    return str(error) or type(error).__name__
