"""Frames from the worker to its engine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from gpuworker.ipc import frames
from gpuworker.ipc.shared_memory import Window
from gpuworker.engine.outbox import Outbox
from gpuworker.engine.pipeline import Pipeline
from gpuworker.engine.work import Work
from shared.messages import PLAIN, Options


class Inbox:
    """Takes in what the worker sends, but for what is about the GPU."""

    def __init__(self, pipeline: Pipeline, outbox: Outbox, window: Window | None) -> None:
        self._pipeline = pipeline
        self._outbox = outbox
        self._window = window
        self._waiting: SimpleQueue[frames.Header] = SimpleQueue()

    def beside(self) -> Callable[[frames.Header], None]:
        """Returns what takes a frame in later, in a thread: a turn should not wait for texts to be tokenized."""
        threading.Thread(target=self._run, name="inbox", daemon=True).start()
        return self._waiting.put

    def take(self, header: frames.Header) -> None:
        """Takes in a frame: returns when what came with it is tokenized."""
        kind = header["kind"]
        if kind == "shared" and self._window is not None:
            large = frames.unpacked(self._window.read(header["at"], header["size"]))
            self._outbox.send({"kind": "read", "at": header["at"]})
            self.take(large)
        elif kind == "add":
            self._pipeline.add(map(_work, header["entries"]))
        elif kind == "drop":
            self._pipeline.drop(header["keys"])
        elif kind == "drain":
            self._outbox.send({"kind": "unbegun", "keys": self._pipeline.drain()})

    def _run(self) -> None:
        while True:
            self.take(self._waiting.get())


def _work(entry: dict[str, Any]) -> Work:
    """Returns an entry as the pipeline has it."""
    return Work(
        entry["key"],
        entry["inputs"],
        entry["since"],
        entry["deadline"],
        entry["attempts"],
        entry["bulk"],
        Options(*entry["options"]) if entry["options"] else PLAIN,
        entry["op"],
    )
