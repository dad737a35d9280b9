"""What the routes of one gateway share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from api.dispatcher import Dispatcher
from api.settings import GatewaySettings


@dataclass(slots=True)
class State:
    """The settings, the dispatcher, whether this gateway is on its way out, and who parses a large body."""

    settings: GatewaySettings
    dispatcher: Dispatcher
    draining: bool = False
    parsing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def missing(self) -> list[str]:
        """Returns what keeps this gateway from serving."""
        return ["draining"] if self.draining else self.dispatcher.missing()

    def alive(self) -> bool:
        """Whether the process works at all."""
        return self.dispatcher.monitor.alive()
