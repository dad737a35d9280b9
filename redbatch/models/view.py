"""The models of a cluster as text and as JSON."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from redbatch.tables import plain_table
from shared.messages import OPS, READY, Heartbeat
from shared.process.log_text import printable_line
from shared.queue_view import QueueView

UNKNOWN = "-"
NO_MODEL = "no worker is alive, so no model is served: start one with `redbatch worker`"


class ModelView(NamedTuple):
    """The live workers of a queue that have the same model, of the same revision ("" while it loads)."""

    queue: str
    model: str
    revision: str
    workers: tuple[Heartbeat, ...]

    @property
    def ops(self) -> tuple[str, ...]:
        """The operations that any of its workers offers."""
        return tuple(op for op in OPS if any(op in each.ops for each in self.workers))

    @property
    def ready(self) -> int:
        """Number of its workers that are ready."""
        return sum(each.state == READY for each in self.workers)

    @property
    def dim(self) -> int:
        """Numbers of a vector; 0 if it has none, or while it loads."""
        return max(each.dim for each in self.workers)


def models_of(queues: Iterable[QueueView]) -> list[ModelView]:
    """Returns the models that live workers serve, by queue, name and revision."""
    workers: dict[tuple[str, str, str], list[Heartbeat]] = defaultdict(list)
    for queue in queues:
        for beat in queue.stats.workers:
            workers[queue.name, beat.model, beat.revision].append(beat)
    return [
        ModelView(*names, tuple(sorted(each, key=lambda beat: beat.worker))) for names, each in sorted(workers.items())
    ]


def as_json(queues: Sequence[QueueView]) -> str:
    """Returns one line of JSON for each model and revision."""
    return "\n".join(
        json.dumps(
            {
                "queue": each.queue,
                "model": each.model,
                "revision": each.revision or None,
                "operations": list(each.ops),
                "dim": each.dim or None,
                "workers": [{"worker": beat.worker, "host": beat.host, "state": beat.state} for beat in each.workers],
            }
        )
        for each in models_of(queues)
    )


def as_text(queues: Sequence[QueueView]) -> RenderableType:
    """Returns a table of models and revisions."""
    models = models_of(queues)
    if not models:
        return Text(NO_MODEL, style="yellow")
    table = plain_table("queue", "model", "revision", "operations")
    table.add_columns("dim", "ready", justify="right", no_wrap=True)
    for each in models:
        ready = Text(f"{each.ready} of {len(each.workers)}", style="" if each.ready else "yellow")
        table.add_row(
            printable_line(each.queue),
            printable_line(each.model),
            printable_line(each.revision) or UNKNOWN,
            ", ".join(each.ops) or UNKNOWN,
            str(each.dim or UNKNOWN),
            ready,
        )
    revisions = {(each.queue, each.revision) for each in models if each.revision}
    several = sorted(queue for queue, number in Counter(queue for queue, _ in revisions).items() if number > 1)
    if not several:
        return table
    warning = f"several revisions serve {printable_line(', '.join(several))}: an answer may come from any of them"
    return Group(table, Text(warning, style="yellow"))
