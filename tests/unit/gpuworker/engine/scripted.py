"""A backend whose steps a test can see, hold up and let fail; and a pipeline around it that collects its reports."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuworker.backends.base import TEXT_OPS, InputRefusedError, InputTooLongError, OneInputError, Token
from gpuworker.engine.pipeline import Pipeline
from gpuworker.engine.work import BatchResult, EntryTask, Reports
from gpuworker.ipc.run_table import RunTable
from gpuworker.policy.limits import Limits
from shared.codec import decode_ids
from shared.messages import DEFAULT_OPTIONS, EMBED, EMBED_ALL, Input, Options

if TYPE_CHECKING:
    from gpuworker.backends.base import Vector

DIM = 4
LONG_S = 30.0
_SLOTS = count()


@dataclass(frozen=True, slots=True)
class Text:
    """A tokenized input: a text, with one token for each character; `!long` in it says that it was cut."""

    text: str

    @property
    def tokens(self) -> int:
        """Its length."""
        return len(self.text)

    @property
    def truncated(self) -> bool:
        """Whether it was cut."""
        return "!long" in self.text


def vector_of(text: str) -> list[float]:
    """Returns the vector of a text, which differs from that of any other text."""
    return [byte / 255 for byte in hashlib.sha256(text.encode()).digest()[:DIM]]


@dataclass
class ScriptedBackend:
    """A model that fails on texts with a marker: `!token`, `!collate`, `!run`, or `!less` (one vector too few).

    Attributes:
        batches: what ran.
        collated: what was made ready to run.
        exclusive: whether each batch had the device to itself.
        concurrent: pairs of batches: one that began, and one that ran at that time.
        running: what runs now.
        max_chars: a batch with more characters runs out of memory.
        num_frees: how often it had to free memory.
        may_run: while this is not set, a batch that begins does not end.
    """

    ops: frozenset[str] = TEXT_OPS
    dim: int = DIM
    device: str = "cpu"
    revision: str = "scripted"
    commit: str = ""
    dtype: str = "float32"
    pooling: str = ""
    max_input_tokens: int = 0
    prompts: Sequence[str] = ()
    empty_prompts: Sequence[str] = ()
    parts: Sequence[str] = ()
    labels: Sequence[str] = ()
    activation = ""
    max_batch_tokens: int = 1_000
    packs: bool = False
    runners: int = 1
    normalizes: bool = False
    runs_sequentially: bool = False
    splits_batches: bool = True
    prepares_ahead: bool = True
    collate_runs_user_code: bool = False
    retry_on: tuple[type[BaseException], ...] = ()
    batches: list[list[str]] = field(default_factory=list)
    collated: list[list[str]] = field(default_factory=list)
    exclusive: list[bool] = field(default_factory=list)
    concurrent: list[tuple[list[str], list[str]]] = field(default_factory=list)
    running: list[list[str]] = field(default_factory=list)
    max_chars: int = 10**9
    num_frees: int = 0
    may_run: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.may_run.set()

    def tokenize(self, inputs: Sequence[Input], options: Options = DEFAULT_OPTIONS) -> list[Text]:
        """Wraps each text, after the name of its prompt if it has one; there is no prompt named `missing`.

        A text with `!long` in it must be cut.
        """
        texts = [str(each) for each in inputs]
        if any("!token" in text for text in texts):
            raise ValueError("a text that cannot be tokenized")
        if options.prompt_name == "missing":
            raise InputRefusedError("there is no such prompt")
        if options.truncate == "no":
            for index, text in enumerate(texts):
                if "!long" in text:
                    raise OneInputError(InputTooLongError(99, 9), index)
        return [Text(f"{options.prompt_name}: {text}" if options.prompt_name else text) for text in texts]

    def collate(self, inputs: Sequence[Any]) -> list[str]:
        """Lists the texts."""
        texts = [each.text for each in inputs]
        self.collated.append(texts)
        if any("!collate" in text for text in texts):
            raise MemoryError("no room for this batch")
        return texts

    def run(self, batch: list[str], op: str = EMBED, *, exclusive: bool, raw: bool = False) -> Vector | list[Vector]:
        """Waits until it may run; returns the vectors of the texts, or those of each character."""
        self.batches.append(batch)
        self.exclusive.append(exclusive)
        self.concurrent += [(batch, other) for other in self.running]
        self.running.append(batch)
        assert self.may_run.wait(LONG_S)
        self.running.remove(batch)
        if sum(map(len, batch)) > self.max_chars:
            raise MemoryError("no room for this batch")
        if any("!run" in text for text in batch):
            raise RuntimeError("a text that cannot be run")
        if op == EMBED_ALL:
            return [np.asarray([vector_of(character) for character in text], dtype=np.float32) for text in batch]
        vectors = [vector_of(text) for text in batch if "!less" not in text]
        rows = np.asarray(vectors, dtype=np.float32).reshape(len(vectors), DIM)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True) if self.normalizes and not raw else rows

    def show_tokens(self, inputs: Sequence[Input], options: Options) -> list[list[Token]]:
        """Returns a token for each character. Fails as `tokenize` does."""
        texts = [each.text for each in self.tokenize(inputs, options)]
        return [
            [Token(id=ord(each), text=each, special=False, start=i, stop=i + 1) for i, each in enumerate(text)]
            for text in texts
        ]

    def decode(self, inputs: Sequence[Input], options: Options) -> list[str]:  # noqa: ARG002 - it needs no options
        """Returns the characters."""
        if any(isinstance(each, str) for each in inputs):
            raise InputRefusedError("these are no ids")
        return ["".join(map(chr, decode_ids(each))) for each in inputs if isinstance(each, bytes)]

    def busy_s(self) -> float:
        """Returns 0: there is no device clock."""
        return 0.0

    def free_memory(self) -> None:
        """Counts the call."""
        self.num_frees += 1

    def warmup(self) -> None:
        """Does nothing."""


class RecordingReports(Reports):
    """Collects what a pipeline reports.

    Attributes:
        begun: keys of the entries of which a run began, in order.
        ended: the same of the ends.
        results: results of batches, in order.
        num_flushes: how often the pipeline waited for its results to be sent.
    """

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.results: list[BatchResult] = []
        self.num_flushes = 0
        super().__init__(self._record, RunTable(), self._flush)

    def _record(self, result: BatchResult, on_sent: Callable[[], None]) -> None:
        self.results.append(result)
        on_sent()

    def _flush(self) -> None:
        self.num_flushes += 1

    def begin(self, tasks: Iterable[EntryTask]) -> None:
        """Notes the keys, too."""
        tasks = list(tasks)
        self.begun += [task.key for task in tasks]
        super().begin(tasks)

    def end(self, tasks: Iterable[EntryTask]) -> None:
        """Notes the keys, too."""
        tasks = list(tasks)
        self.ended += [task.key for task in tasks]
        super().end(tasks)


@dataclass
class PipelineHarness:
    """A running pipeline and its reports."""

    backend: ScriptedBackend
    limits: Limits
    reports: RecordingReports = field(default_factory=RecordingReports)

    def __post_init__(self) -> None:
        self.pipeline = Pipeline(self.backend, self.limits, self.reports)
        self.pipeline.start()

    def add(self, *tasks: EntryTask) -> None:
        """Adds entries to the pipeline."""
        self.pipeline.add(tasks)

    @property
    def results(self) -> list[BatchResult]:
        """The results of batches, in order."""
        return self.reports.results

    def runs(self, task: EntryTask) -> bool:
        """Returns whether an entry runs, as a worker sees it."""
        return self.reports.runs.started_at(task.slot) is not None

    @property
    def completed(self) -> dict[str, EntryTask]:
        """The entries that were completed, by key."""
        return {task.key: task for result in list(self.results) for task in result.completed}

    @property
    def failures(self) -> dict[str, str]:
        """The codes of the entries that failed, by key."""
        return {failure.key: failure.code for result in list(self.results) for failure in result.failures}

    @property
    def answered_keys(self) -> list[str]:
        """The keys of all answers: a key that has two answers is there twice."""
        results = list(self.results)
        completed = [task.key for result in results for task in result.completed]
        return completed + [failure.key for result in results for failure in result.failures]


def entry_task(
    key: str, *texts: str, since: float | None = None, timeout_s: float = LONG_S, attempts: int = 0
) -> EntryTask:
    """Returns an entry with these inputs, or with its key as the only one, that has arrived now."""
    now = time.monotonic()
    arrived = now if since is None else since
    return EntryTask(key, texts or (key,), arrived, now + timeout_s, attempts, slot=next(_SLOTS))


def has_right_vectors(task: EntryTask) -> bool:
    """Returns whether each output is the vector of the input at the same index."""
    found = np.asarray(task.outputs, dtype=np.float32)
    return np.array_equal(found, np.asarray([vector_of(str(text)) for text in task.inputs], dtype=np.float32))
