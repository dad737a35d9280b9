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

    def check_model(self, name: str) -> None:
        """Sees that a model of that name, or whose workers call it so, is served here. Raises ModelNotFound."""
        served = {self.settings.queue, *(each.model for each in self.dispatcher.monitor.workers())}
        if name not in served:
            raise ModelNotFound(self.unknown_model(), param="model")

    def unknown_model(self) -> str:
        """Returns what to say to whoever asks for another model."""
        return f"There is no such model here. Served: {self.settings.queue}."

    def alive(self) -> bool:
        """Whether the process works at all."""
        return self.dispatcher.monitor.alive()
