"""A real Redis for the whole session, a queue for each test, and a look at what the test left behind."""

from __future__ import annotations

import fcntl
import re
import uuid
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import redis
import redis.asyncio
from hypothesis import settings

from shared.keys import Keys
from shared.connection import Queue
from shared.settings import QueueSettings
from tests.leaks import find_leaks, remove
from tests.servers import Server, Version, parse_version, require

pytest_plugins = ["tests.chaos.table"]

ROOM, DOOR = Path(__file__), Path(__file__).with_name("__init__.py")
"""Two files that all processes which test this checkout have, to be locked."""

settings.register_profile("redbatch", deadline=None)  # a busy machine is no failure
settings.load_profile("redbatch")


def pytest_configure(config: pytest.Config) -> None:
    """Names the markers, so that a misspelt one is an error."""
    config.addinivalue_line("markers", "redis: talks to a Redis server")
    config.addinivalue_line("markers", "buries: may leave dead letters after the test")
    config.addinivalue_line("markers", "long: is left to those who ask for slow tests")
    config.addinivalue_line("markers", "frameworks: in an environment of their own (make test-frameworks)")
    config.addinivalue_line("markers", "alone: no other test runs beside it, since it measures times")
    config.addinivalue_line("markers", "longest: begins before all others, so that none waits for its end")
    config.addinivalue_line("markers", "litters: may leave anything, which is removed")
    config.addinivalue_line("markers", "leaves(*consumers): names that may stay in the group after the test")


@pytest.hookimpl(trylast=True)  # after those that shuffle them
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that run alone come towards the end: amid the others each would have all wait for the longest that runs.

    Those that are `long` are left to those who ask for them, with `-m slow` or `-m long`.
    """
    if not re.search(r"\b(slow|long)\b", config.getoption("markexpr")):
        left = [item for item in items if item.get_closest_marker("long") is not None]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item.get_closest_marker("long") is None]

    def turn(item: pytest.Item) -> int:
        return -1 if item.get_closest_marker("longest") else 1 if item.get_closest_marker("alone") else 0

    items.sort(key=turn)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # around all fixtures, and around what watches a test's time
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Tests run side by side, in several processes, but one that is `alone` does so with no other.

    Who waits to be alone keeps the door shut: nobody comes in meanwhile, so it waits for those that are there already.
    """
    share = fcntl.LOCK_SH if item.get_closest_marker("alone") is None else fcntl.LOCK_EX
    with ROOM.open("rb") as room:
        with DOOR.open("rb") as door:
            fcntl.flock(door, share)
            fcntl.flock(room, share)
        return (yield)


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """The URL of a server of this session's own, without persistence, for one who may do all there."""
    with Server() as server:
        yield server.url


@pytest.fixture(scope="session")
def server_version(redis_url: str) -> Version:
    """The version of that server, as (7, 0, 15)."""
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        return parse_version(client.info("server")["redis_version"])


@pytest.fixture
def needs_redis(server_version: Version) -> Callable[[str], None]:
    """Call it with a version: an older server skips the test, or fails it where skipping is forbidden."""
    return lambda version: require(version, server_version)


@pytest.fixture
def queue_name() -> str:
    """A queue that no other test knows."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def keys(queue_name: str) -> Keys:
    """The keys of the test's queue."""
    return Keys(queue_name)


@pytest_asyncio.fixture
async def queue(redis_url: str, queue_name: str) -> AsyncIterator[Queue]:
    """The test's queue, its links closed afterwards."""
    queue = Queue(QueueSettings(redis_url=redis_url), queue_name, "test")
    yield queue
    await queue.close()


@pytest_asyncio.fixture
async def raw(redis_url: str) -> AsyncIterator[redis.asyncio.Redis]:
    """A client with nothing of ours in it, for looking at Redis and for doing it harm."""
    async with redis.asyncio.Redis.from_url(redis_url, protocol=2) as client:
        yield client


@pytest.fixture(autouse=True)
def leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test marked `redis` that leaves more in its queue than the contract allows."""
    if request.node.get_closest_marker("redis") is None:
        yield
        return
    url, keys = request.getfixturevalue("redis_url"), request.getfixturevalue("keys")
    yield
    consumers = [name for marker in request.node.iter_markers("leaves") for name in marker.args]
    with redis.Redis.from_url(url, protocol=2) as client:
        dead = request.node.get_closest_marker("buries") is not None
        found = find_leaks(client, keys, consumers, dead=dead)
        remove(client, keys)
    if request.node.get_closest_marker("litters") is None:
        assert not found, f"left behind: {found}"


@pytest.fixture(scope="session")
def graphs(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Has the graphs that backends make kept for the next run of the tests, and nowhere else."""
    assert request.config.cache is not None
    with pytest.MonkeyPatch.context() as patch:
        folder = request.config.cache.mkdir("graphs")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder
