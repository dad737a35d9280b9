"""What the routes of one gateway share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from api.dispatcher import Dispatcher
from api.settings import GatewaySettings
from shared.errors import ModelNotFound


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

    def models(self) -> list[dict[str, object]]:
        """Returns the models that live workers serve, as OpenAI lists them: a queue is one model's."""
        workers = self.dispatcher.monitor.workers()
        if not workers:
            return []
        created = min(each.started_ms for each in workers) // 1000
        return [{"id": self.settings.queue, "object": "model", "created": created, "owned_by": "redbatch"}]

    def model(self, name: str) -> dict[str, object]:
        """Returns one of them under any of its names. Raises ModelNotFound: no live worker serves it."""
        self.check_model(name)
        for found in self.models():
            return found | {"id": name}
        raise ModelNotFound("No worker serves it now.", param="model")

    def check_model(self, name: str) -> None:
        """Sees that this is the model here: by the name of its queue, or as its workers call it.

        As long as no worker was seen, any name may be right: admission knows how long to wait for one.

        Raises:
            ModelNotFound: it is another.
        """
        known = self.dispatcher.monitor.models
        if known and name != self.settings.queue and name not in known:
            raise ModelNotFound(f"There is no such model here. Served: {self.settings.queue}.", param="model")

    def alive(self) -> bool:
        """Whether the process works at all."""
        return self.dispatcher.monitor.alive()
