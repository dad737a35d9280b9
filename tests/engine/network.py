"""A bridge, and a network namespace with a name server for each node: the network between machines."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from tests.engine.commands import run
from tests.engine.name_server import name_server

BRIDGE = "redbatch-test"
SUBNET = "10.213.66"
HOST = f"{SUBNET}.254"
"""The address of the tests, and of the registry."""


def address_of(index: int) -> str:
    """Returns the address of a node; the first has the index 0."""
    return f"{SUBNET}.{index + 1}"


@contextmanager
def network(names: Sequence[str]) -> Iterator[None]:
    """Connects a namespace for each name with the machine, for the time of the block.

    What an earlier run left behind is removed first.
    """
    _remove(names)
    try:
        run(["ip", "link", "add", BRIDGE, "type", "bridge"])
        run(["ip", "address", "add", f"{HOST}/24", "dev", BRIDGE])
        run(["ip", "link", "set", BRIDGE, "up"])
        for index, name in enumerate(names):
            _add(name, address_of(index))
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(name_server(name))
            yield
    finally:
        _remove(names)


def _add(name: str, address: str) -> None:
    run(["ip", "netns", "add", name])
    inside = ["ip", "-netns", name]
    run(["ip", "link", "add", f"rb-{name}", "type", "veth", "peer", "name", "eth0", "netns", name])
    run(["ip", "link", "set", f"rb-{name}", "master", BRIDGE, "up"])
    run([*inside, "address", "add", f"{address}/24", "dev", "eth0"])
    for link in ("lo", "eth0"):
        run([*inside, "link", "set", link, "up"])
    run([*inside, "route", "add", "default", "via", HOST])


def _remove(names: Sequence[str]) -> None:
    for name in names:
        subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "delete", f"rb-{name}"], check=False, capture_output=True)
    subprocess.run(["ip", "link", "delete", BRIDGE], check=False, capture_output=True)


@contextmanager
def link_down(name: str) -> Iterator[None]:
    """Cuts the link of a node for the time of the block."""
    run(["ip", "link", "set", f"rb-{name}", "down"])
    try:
        yield
    finally:
        run(["ip", "link", "set", f"rb-{name}", "up"])
