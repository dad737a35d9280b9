"""What `redbatch up` starts: which processes, with which command lines and environments."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from shared.process.settings import variable_of
from shared.settings import DEFAULT_MODEL, queue_slug

Given = dict[str, str]
"""Settings by name, as text."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """One process: its name in the log, its command line and environment, and the descriptors that it inherits."""

    name: str
    command: list[str]
    environment: dict[str, str]
    descriptors: tuple[int, ...] = ()


def under_up(given: Given) -> Given:
    """Returns the settings of an embedded cluster: what the user gave, and what differs from processes on their own."""
    differing = {
        # Nobody scrapes fixed ports of a cluster in a terminal, and two workers cannot have the same.
        "admin_port": "0",
        # No load balancer has to look away first.
        "drain_delay_s": "0",
        "queue": queue_slug(given.get("model", DEFAULT_MODEL)),
    }
    return differing | given


def gateway_specs(count: int, settings: Given, listener: int, environment: Mapping[str, str]) -> list[ChildSpec]:
    """Returns the gateways. All of them accept from the one listening socket `listener`."""
    return [
        ChildSpec(
            name=f"gateway-{number}",
            command=_command("gateway", "--listen-fd", str(listener)),
            environment=_environment(environment, settings, offset=number - 1),
            descriptors=(listener,),
        )
        for number in range(1, count + 1)
    ]


def worker_specs(count: int, settings: Given, environment: Mapping[str, str], *, gateways: int = 0) -> list[ChildSpec]:
    """Returns the workers. Where admin ports are counted, those of the `gateways` come first."""
    specs: list[ChildSpec] = []
    for number in range(1, count + 1):
        own = dict(settings)
        if "worker_id" in own and count > 1:
            own["worker_id"] = f"{own['worker_id']}-{number}"
        specs.append(
            ChildSpec(
                name=f"worker-{number}",
                command=_command("worker"),
                environment=_environment(environment, own, offset=gateways + number - 1),
            )
        )
    return specs


def _command(*arguments: str) -> list[str]:
    # -P: the folder that the user stands in is no place to import from.
    return [sys.executable, "-P", "-m", "redbatch", *arguments]


def _environment(base: Mapping[str, str], settings: Given, *, offset: int) -> dict[str, str]:
    """Returns the environment of a child. A given admin port is the first of consecutive ones."""
    own = dict(settings)
    port = own["admin_port"]
    if port.isdecimal() and port != "0":
        own["admin_port"] = str(int(port) + offset)
    return {**base, **{variable_of(name): value for name, value in own.items()}}
