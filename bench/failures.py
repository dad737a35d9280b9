"""What a measurement may meet: a load, a cluster or a model that does not start, or a process that is gone."""

from __future__ import annotations

import subprocess

import psutil
import redis

from bench.child import LimitError
from bench.cluster import ClusterError
from bench.generator import GeneratorError
from redbatch.up.local_redis import LocalRedisError

FAILURES = (
    *(GeneratorError, ClusterError, LimitError, LocalRedisError),
    *(psutil.Error, redis.RedisError, subprocess.SubprocessError, OSError),
)


def reason(error: BaseException) -> str:
    """Returns what an error says, or its kind when it says nothing."""
    return str(error) or type(error).__name__
