"""Frames from the worker to its engine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from gpuworker.engine.outbox import Outbox
from gpuworker.engine.pipeline import Pipeline
from gpuworker.engine.work import EntryTask
from gpuworker.ipc.messages import (
    AddEntries,
    Drain,
    DropEntries,
    EngineEntry,
    EntriesReturned,
    Message,
    SharedMessage,
    SharedMessageRead,
    decode_message,
)
from gpuworker.ipc.shared_memory import SharedMemoryReader
from shared.messages import DEFAULT_OPTIONS


class Inbox:
    """Takes in what the worker sends, but for what is about the GPU."""

    def __init__(self, pipeline: Pipeline, outbox: Outbox, window: SharedMemoryReader | None) -> None:
        self._pipeline = pipeline
        self._outbox = outbox
        self._window = window
        self._waiting: SimpleQueue[Message] = SimpleQueue()

    def beside(self) -> Callable[[Message], None]:
        """Returns what takes a frame in later, in a thread: a turn should not wait for texts to be tokenized."""
        threading.Thread(target=self._run, name="inbox", daemon=True).start()
        return self._waiting.put

    def take(self, message: Message) -> None:
        """Handles a message. Returns when the entries that came with it are tokenized."""
        match message:
            case SharedMessage() if self._window is not None:
                large = decode_message(self._window.read(message.at, message.size))
                self._outbox.send(SharedMessageRead(message.at))
                self.take(large)
            case AddEntries():
                self._pipeline.add(map(_work, message.entries))
            case DropEntries():
                self._pipeline.drop(message.keys)
            case Drain():
                self._outbox.send(EntriesReturned(self._pipeline.drain()))
            case _:
                pass

    def _run(self) -> None:
        while True:
            self.take(self._waiting.get())


def _work(entry: EngineEntry) -> EntryTask:
    """Returns an entry as the pipeline has it."""
    return EntryTask(
        entry.key,
        entry.inputs,
        entry.since,
        entry.deadline,
        entry.attempts,
        entry.bulk,
        DEFAULT_OPTIONS if entry.options is None else entry.options,
        entry.op,
    )
