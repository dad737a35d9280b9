"""What the routes of one gateway share."""

from __future__ import annotations

from dataclasses import dataclass

from api.dispatcher import Dispatcher
from api.settings import GatewaySettings


@dataclass(slots=True)
class State:
    """The settings, the dispatcher, and whether this gateway is on its way out."""

    settings: GatewaySettings
    dispatcher: Dispatcher
    draining: bool = False

    def missing(self) -> list[str]:
        """Returns what keeps this gateway from serving."""
        return ["draining"] if self.draining else self.dispatcher.missing()

    def alive(self) -> bool:
        """Whether the process works at all."""
        return self.dispatcher.monitor.alive()
