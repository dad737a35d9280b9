"""What the tests on engines share: the images, an engine, and a Swarm. Each is made when the first test needs it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.engine.bases import make_bases
from tests.engine.engine import Engine
from tests.engine.images import build_images
from tests.engine.machine import why_not
from tests.engine.network import network
from tests.engine.scenes import Table
from tests.engine.swarm import NAMES, Swarm, remove_all, swarm
from tests.engine.workspace import workspace
from tests.servers import skip


@pytest.fixture(scope="session")
def images() -> None:
    """Has the images of Redbatch and their bases built, in the data of the first node. Skips where none can run."""
    reason = why_not()
    if reason is not None:
        skip(reason)
    with Engine(workspace() / NAMES[0]) as builder:
        make_bases(builder)
        build_images(builder)


@pytest.fixture(scope="module")
def engine(images: None) -> Iterator[Engine]:
    """An engine with the images, at the address of the first node, without containers."""
    with network(NAMES[:1]), Engine(workspace() / NAMES[0], NAMES[0]) as engine:
        remove_all(engine)
        yield engine
        remove_all(engine)


@pytest.fixture(scope="module")
def nodes(images: None) -> Iterator[Swarm]:
    """Three nodes."""
    with swarm(workspace(), {}) as nodes:
        yield nodes


@pytest.fixture(scope="session")
def table() -> Iterator[Table]:
    """The table of all scenes, printed at the end."""
    table = Table()
    yield table
    if table.rows:
        sys.stdout.write(f"\n{table}\n")
