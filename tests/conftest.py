"""A real Redis for the whole session, a queue for each test, and a check for what the test leaves behind."""

from __future__ import annotations

import fcntl
import gc
import re
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import redis
import redis.asyncio
from hypothesis import settings

from shared.keys import Keys
from shared.process.limited_log import LimitedLog
from shared.queue_connections import QueueConnections
from shared.settings import QueueSettings
from tests.leaks import find_leaks, remove
from tests.redis_cluster import RedisCluster
from tests.servers import Server, Version, parse_version, require

pytest_plugins = ["tests.chaos.other_checkout", "tests.chaos.report"]

RUNNING, ENTERING = Path(__file__), Path(__file__).with_name("__init__.py")
"""Two files to lock: every process that tests this checkout has them."""

settings.register_profile("redbatch", deadline=None)  # a busy machine is no failure
settings.load_profile("redbatch")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects no garbage while the tests are collected, and never what is there then: torch and thousands of tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)  # after the plugins that shuffle the tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts exclusive tests last: among the others, each would make all processes wait for the longest running test.

    Tests marked `long` are deselected unless `-m slow` or `-m long` selects them, and those marked `engine` or
    `browser` unless `-m engine` or `-m browser` does.
    """
    for marker, selecting in (("long", r"\b(slow|long)\b"), ("engine", r"\bengine\b"), ("browser", r"\bbrowser\b")):
        if not re.search(selecting, config.getoption("markexpr")):
            left = [item for item in items if item.get_closest_marker(marker) is not None]
            config.hook.pytest_deselected(items=left)
            items[:] = [item for item in items if item.get_closest_marker(marker) is None]

    def rank(item: pytest.Item) -> int:
        return -1 if item.get_closest_marker("starts_first") else 1 if item.get_closest_marker("exclusive") else 0

    items.sort(key=rank)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # around all fixtures and the timeout of the test
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Lets tests run in parallel in several processes, but an exclusive test only while no other test runs.

    A waiting exclusive test holds the lock on ENTERING: no test starts meanwhile, so it waits only for running ones.
    """
    mode = fcntl.LOCK_SH if item.get_closest_marker("exclusive") is None else fcntl.LOCK_EX
    with RUNNING.open("rb") as running:
        with ENTERING.open("rb") as entering:
            fcntl.flock(entering, mode)
            fcntl.flock(running, mode)
        return (yield)


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """The URL of this session's server, without persistence, as a user with all rights."""
    with Server() as server:
        yield server.url


@pytest.fixture
def servers() -> Iterator[RedisCluster]:
    """Two servers of a Redis Cluster, of which the first has all slots."""
    with RedisCluster() as servers:
        yield servers


@pytest.fixture(scope="session")
def server_version(redis_url: str) -> Version:
    """The version of that server, as (7, 0, 15)."""
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        return parse_version(client.info("server")["redis_version"])


@pytest.fixture
def needs_redis(server_version: Version) -> Callable[[str], None]:
    """A function that takes a version: on an older server it skips the test, or fails it if skipping is forbidden."""
    return lambda version: require(version, server_version)


@pytest.fixture
def queue_name() -> str:
    """A queue name that no other test uses."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def keys(queue_name: str) -> Keys:
    """The keys of the test's queue."""
    return Keys(queue_name)


@pytest_asyncio.fixture
async def queue(redis_url: str, queue_name: str) -> AsyncIterator[QueueConnections]:
    """The test's queue; its connections are closed after the test."""
    queue = QueueConnections(QueueSettings(redis_url=redis_url), queue_name, "test")
    yield queue
    await queue.close()


@pytest_asyncio.fixture
async def raw(redis_url: str) -> AsyncIterator[redis.asyncio.Redis]:
    """A plain redis-py client, to inspect Redis and to cause faults."""
    async with redis.asyncio.Redis.from_url(redis_url, protocol=2) as client:
        yield client


@pytest.fixture(autouse=True)
def writes_counted_lines() -> Iterator[None]:
    """Has the log lines that a test counted written at its end: a timer would write them into the log of another."""
    yield
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer) and getattr(thread.function, "__func__", None) is LimitedLog.flush:
            thread.function()


@pytest.fixture(autouse=True)
def leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test marked `redis` that leaves more in its queue than the contract allows."""
    if request.node.get_closest_marker("redis") is None:
        yield
        return
    url, keys = request.getfixturevalue("redis_url"), request.getfixturevalue("keys")
    yield
    consumers = [name for marker in request.node.iter_markers("leaves_consumers") for name in marker.args]
    with redis.Redis.from_url(url, protocol=2) as client:
        dead = request.node.get_closest_marker("leaves_dead_letters") is not None
        uploads = request.node.get_closest_marker("leaves_uploads") is not None
        found = find_leaks(client, keys, consumers, dead=dead, uploads=uploads)
        remove(client, keys)
    if request.node.get_closest_marker("leaves_anything") is None:
        assert not found, f"left behind: {found}"


@pytest.fixture(scope="session")
def graphs(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Has the graphs that backends make kept for the next run of the tests, and nowhere else."""
    assert request.config.cache is not None
    with pytest.MonkeyPatch.context() as patch:
        folder = request.config.cache.mkdir("graphs")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder
