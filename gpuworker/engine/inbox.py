"""Messages from the worker to its engine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from gpuworker.engine.outbox import Outbox
from gpuworker.engine.pipeline import Pipeline
from gpuworker.engine.work import EntryTask
from gpuworker.ipc import framing
from gpuworker.ipc.messages import (
    AddEntries,
    Drain,
    DropEntries,
    EngineEntry,
    EntriesReturned,
    Message,
    SharedMessage,
    SharedMessageRead,
)
from gpuworker.ipc.shared_memory import SharedMemoryReader
from shared.messages import DEFAULT_OPTIONS


class Inbox:
    """Handles the worker's messages, except those about the GPU."""

    def __init__(self, pipeline: Pipeline, outbox: Outbox, shared_memory: SharedMemoryReader | None) -> None:
        self._pipeline = pipeline
        self._outbox = outbox
        self._shared_memory = shared_memory
        self._messages: SimpleQueue[Message] = SimpleQueue()

    def start_thread(self) -> Callable[[Message], None]:
        """Returns a handler that only queues a message for a thread: a turn must not wait for texts to be tokenized."""
        threading.Thread(target=self._run, name="inbox", daemon=True).start()
        return self._messages.put

    def handle(self, message: Message) -> None:
        """Handles a message. Returns when the entries that came with it are tokenized."""
        match message:
            case SharedMessage() if self._shared_memory is not None:
                long_message, _ = framing.decode(self._shared_memory.read(message.at, message.size))
                self._outbox.send(SharedMessageRead(message.at))
                self.handle(long_message)
            case SharedMessageRead():
                self._outbox.free(message.at)
            case AddEntries():
                self._pipeline.add(map(_create_task, message.entries))
            case DropEntries():
                self._pipeline.drop(message.keys)
            case Drain():
                self._outbox.send(EntriesReturned(tuple(self._pipeline.drain())))
            case _:
                pass

    def _run(self) -> None:
        while True:
            self.handle(self._messages.get())


def _create_task(entry: EngineEntry) -> EntryTask:
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
        entry.slot,
        entry.cost,
    )
