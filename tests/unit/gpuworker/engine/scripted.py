"""A backend whose steps a test can see, hold up and let fail; and a pipeline around it whose words are collected."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuworker.backends.base import OF_TEXTS, InputRefused, Token
from gpuworker.policy.batching import Limits
from gpuworker.engine.pipeline import Pipeline
from gpuworker.engine.work import Ran, Told, Work
from shared.codec import decode_ids
from shared.messages import EMBED, EMBED_ALL, PLAIN, Input, Options

if TYPE_CHECKING:
    from gpuworker.backends.base import Vector

DIM = 4
LONG_S = 30.0


@dataclass(frozen=True, slots=True)
class Text:
    """A tokenized input: a text, as many tokens as it has characters."""

    text: str

    @property
    def tokens(self) -> int:
        """Its length."""
        return len(self.text)


def vector_of(text: str) -> list[float]:
    """Returns the vector of a text, which no other text has."""
    return [byte / 255 for byte in hashlib.sha256(text.encode()).digest()[:DIM]]


@dataclass
class Scripted:
    """A model that fails on texts that say so: `!token`, `!collate`, `!run`, or `!less` (one vector too few).

    A batch with more characters than it has `room` for runs out of memory; `freed` counts how often it was told to
    give some back. `held` lets no batch run until it is set free; `batches` and `collated` list what was run and made
    ready to run, `alone` whether each batch had the device to itself, `met` which texts ran while which others did.
    """

    ops: frozenset[str] = OF_TEXTS
    dim: int = DIM
    device: str = "cpu"
    revision: str = "scripted"
    commit: str = ""
    dtype: str = "float32"
    pooling: str = ""
    max_input_tokens: int = 0
    max_batch_tokens: int = 1_000
    packs: bool = False
    runners: int = 1
    normalizes: bool = False
    in_turn: bool = False
    ahead: bool = True
    batches: list[list[str]] = field(default_factory=list)
    collated: list[list[str]] = field(default_factory=list)
    alone: list[bool] = field(default_factory=list)
    met: list[tuple[list[str], list[str]]] = field(default_factory=list)
    running: list[list[str]] = field(default_factory=list)
    room: int = 10**9
    freed: int = 0
    free: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.free.set()

    def tokenize(self, inputs: Sequence[Input], options: Options = PLAIN) -> list[Text]:
        """Wraps each text, behind the prompt's name if there is one; there is none named `missing`."""
        texts = [str(each) for each in inputs]
        if any("!token" in text for text in texts):
            raise ValueError("a text that cannot be read")
        if options.prompt_name == "missing":
            raise InputRefused("there is no such prompt")
        return [Text(f"{options.prompt_name}: {text}" if options.prompt_name else text) for text in texts]

    def collate(self, inputs: Sequence[Any]) -> list[str]:
        """Lists the texts."""
        texts = [each.text for each in inputs]
        self.collated.append(texts)
        if any("!collate" in text for text in texts):
            raise MemoryError("no room for this batch")
        return texts

    def run(self, batch: list[str], op: str = EMBED, *, alone: bool, raw: bool = False) -> Vector | list[Vector]:
        """Returns the vectors, or those of each character, once it is free to."""
        self.batches.append(batch)
        self.alone.append(alone)
        self.met += [(batch, other) for other in self.running]
        self.running.append(batch)
        assert self.free.wait(LONG_S)
        self.running.remove(batch)
        if sum(map(len, batch)) > self.room:
            raise MemoryError("no room for this batch")
        if any("!run" in text for text in batch):
            raise RuntimeError("a text that cannot be run")
        if op == EMBED_ALL:
            return [np.asarray([vector_of(character) for character in text], dtype=np.float32) for text in batch]
        vectors = [vector_of(text) for text in batch if "!less" not in text]
        rows = np.asarray(vectors, dtype=np.float32).reshape(len(vectors), DIM)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True) if self.normalizes and not raw else rows

    def show_tokens(self, inputs: Sequence[Input], options: Options) -> list[list[Token]]:
        """Returns a token for each character; fails as `tokenize` does."""
        texts = [each.text for each in self.tokenize(inputs, options)]
        return [
            [Token(id=ord(each), text=each, special=False, start=i, stop=i + 1) for i, each in enumerate(text)]
            for text in texts
        ]

    def decode(self, inputs: Sequence[Input], options: Options) -> list[str]:  # noqa: ARG002 - all the same
        """Returns the characters."""
        if any(isinstance(each, str) for each in inputs):
            raise InputRefused("these are no ids")
        return ["".join(map(chr, decode_ids(each))) for each in inputs if isinstance(each, bytes)]

    def busy_s(self) -> float:
        """Nobody knows."""
        return 0.0

    def free_memory(self) -> None:
        """Counts that it was asked to."""
        self.freed += 1

    def warmup(self) -> None:
        """Does nothing."""


@dataclass
class Line:
    """A running pipeline and all that it said."""

    backend: Scripted
    limits: Limits
    begun: list[str] = field(default_factory=list)
    rans: list[Ran] = field(default_factory=list)
    settled: int = 0

    def _settle(self) -> None:
        self.settled += 1

    def __post_init__(self) -> None:
        self.pipeline = Pipeline(self.backend, self.limits, Told(self.begun.extend, self.rans.append, self._settle))
        self.pipeline.start()

    def add(self, *works: Work) -> None:
        """Brings entries to the pipeline."""
        self.pipeline.add(works)

    @property
    def done(self) -> dict[str, Work]:
        """The entries that came back with vectors, by key."""
        return {work.key: work for ran in list(self.rans) for work in ran.done}

    @property
    def failed(self) -> dict[str, str]:
        """The codes of the entries that came back with an error, by key."""
        return {failure.key: failure.code for ran in list(self.rans) for failure in ran.failed}

    @property
    def answers(self) -> list[str]:
        """The keys of all that came back, however often they did."""
        rans = list(self.rans)
        return [each.key for ran in rans for each in ran.done] + [each.key for ran in rans for each in ran.failed]


def work(key: str, *texts: str, since: float | None = None, timeout_s: float = LONG_S, attempts: int = 0) -> Work:
    """Returns an entry with these inputs, or with its key as the only one, that has arrived now."""
    now = time.monotonic()
    return Work(key, texts or (key,), now if since is None else since, now + timeout_s, attempts)


def right(answered: Work) -> bool:
    """Whether each row is the vector of the input at its place."""
    found = np.asarray(answered.rows, dtype=np.float32)
    return np.array_equal(found, np.asarray([vector_of(str(text)) for text in answered.inputs], dtype=np.float32))
