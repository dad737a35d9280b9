"""The models of a cluster as text and as JSON."""

from __future__ import annotations

import io
import json
from dataclasses import replace

from rich.console import Console

from redbatch.models.view import as_json, as_text
from shared.messages import EMBED, LOADING, TOKENIZE, Heartbeat
from shared.producer import QueueStats
from shared.queue_view import QueueView

BEAT = Heartbeat("gpu-1", "h", 7, "cuda:0", "org/m", 384, "ready", 9.0, 1, 0, 0, revision="old", ops=(EMBED, TOKENIZE))
NEW = replace(BEAT, worker="gpu-2", revision="new")
LOADS = replace(BEAT, worker="gpu-3", revision="", state=LOADING, dim=0, ops=())


def queue_of(name: str, *beats: Heartbeat) -> QueueView:
    """Returns a queue with these workers."""
    return QueueView(name, QueueStats(100_000, b"1", 0, 0, (0, 0), 0, (None, None), 0, beats))


def text_of(*queues: QueueView, width: int = 100) -> str:
    """Returns the models as a terminal of a width shows them."""
    output = io.StringIO()
    Console(file=output, width=width).print(as_text(queues))
    return output.getvalue()


def test_each_revision_has_a_row() -> None:
    """With the operations of its workers, and how many of these are ready."""
    text = text_of(queue_of("a", BEAT, replace(BEAT, worker="gpu-4"), LOADS), queue_of("b", NEW))
    rows = [line.split() for line in text.splitlines()[1:]]
    assert rows == [
        ["a", "org/m", "-", "-", "-", "0", "of", "1"],
        ["a", "org/m", "old", "embed,", "tokenize", "384", "2", "of", "2"],
        ["b", "org/m", "new", "embed,", "tokenize", "384", "1", "of", "1"],
    ]


def test_several_revisions_of_a_queue_are_a_warning() -> None:
    """A worker that still loads its model has none yet."""
    assert "several revisions serve a: an answer may come from any" in text_of(queue_of("a", BEAT, NEW))
    assert "no worker is alive" in text_of(queue_of("a"))
    copy = replace(BEAT, worker="gpu-4", model="./copy")
    assert "several" not in text_of(queue_of("a", BEAT, copy)), "one revision under two names"


def test_json_has_a_line_for_each_revision() -> None:
    """What is unknown is null."""
    first, second = map(json.loads, as_json([queue_of("a", BEAT, LOADS)]).splitlines())
    assert first == {
        "queue": "a",
        "model": "org/m",
        "revision": None,
        "operations": [],
        "dim": None,
        "workers": [{"worker": "gpu-3", "host": "h", "state": "loading"}],
    }
    assert (second["revision"], second["operations"], second["dim"]) == ("old", ["embed", "tokenize"], 384)
