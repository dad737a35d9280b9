"""What the pipeline carries: entries, their inputs, and the batches these go into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuworker.policy.batching import Waiting
from shared.messages import EMBED, PLAIN, Input, Options

if TYPE_CHECKING:
    from gpuworker.backends.base import Encoded, Output


USUAL = (EMBED, PLAIN.prompt_name, PLAIN.truncate)
"""How inputs are read for whom it does not matter."""


@dataclass(slots=True)
class Work:
    """An entry in the engine: its inputs, and how far they have come. `runs` counts its batches that run now.

    `tokens` is what the model reads of each of them, `read_s` how long its tokenizer took for them and others until
    `read_at`, and `read_as` says how and to what end: the options that a tokenizer heeds. `rows` are what it gives for
    each input; what a tokenizer alone gives are `values`.
    """

    key: str
    inputs: Sequence[Input]
    since: float
    deadline: float
    attempts: int = 0
    bulk: bool = False
    options: Options = PLAIN
    op: str = EMBED
    read_as: tuple[str, str | None, str] = field(init=False)
    tokens: list[int] = field(default_factory=list)
    read_s: float = 0.0
    read_at: float = 0.0
    rows: list[Output | None] = field(default_factory=list)
    values: list[bytes] | None = None
    left: int = 0
    runs: int = 0
    began: float | None = None
    over: bool = False

    def __post_init__(self) -> None:
        usual = self.options is PLAIN and self.op == EMBED
        self.read_as = USUAL if usual else (self.op, self.options.prompt_name, self.options.truncate)
        self.rows = [None] * len(self.inputs)
        self.left = len(self.inputs)


class Item(NamedTuple):
    """One input that waits, tokenized: where it stands `at` in its entry, and when it was ready to run (`shelved`)."""

    work: Work
    at: int
    encoded: Encoded
    waiting: Waiting
    shelved: float

    @property
    def content(self) -> object:
        """What the model reads of it: inputs for which this is the same have the same vector."""
        given, read_as = self.work.inputs[self.at], self.work.read_as
        return given if read_as == USUAL else (given, read_as)


@dataclass(slots=True)
class Row:
    """One text of a batch, and the inputs that it answers: all that wait with the same content."""

    items: list[Item]

    @property
    def encoded(self) -> Encoded:
        """The text as the model reads it."""
        return self.items[0].encoded

    @property
    def waiting(self) -> Waiting:
        """How it counts for the plan: waiting as long as its oldest input, no longer than its most urgent.

        It is bulk if all of them are.
        """
        first = self.items[0].waiting
        if len(self.items) == 1:
            return first
        since = min(item.waiting.since for item in self.items)
        deadline = min(item.waiting.deadline for item in self.items)
        return first._replace(since=since, deadline=deadline, bulk=all(item.waiting.bulk for item in self.items))


class Batch(NamedTuple):
    """Rows that run at once, collated; or the error that collating them raised."""

    rows: tuple[Row, ...]
    collated: Any
    error: Exception | None = None

    @property
    def items(self) -> list[Item]:
        """The inputs of all rows."""
        return [item for row in self.rows for item in row.items]

    @property
    def lengths(self) -> list[int]:
        """Tokens of each row."""
        return [row.encoded.tokens for row in self.rows]

    @property
    def tokens(self) -> int:
        """Tokens without padding."""
        return sum(self.lengths)

    @property
    def padded(self) -> int:
        """Tokens with padding."""
        return max(self.lengths) * len(self.rows)


@dataclass(frozen=True, slots=True)
class Failed:
    """An entry that gets an error instead of vectors."""

    key: str
    code: str
    message: str


@dataclass(slots=True)
class Ran:
    """What came out of a batch: entries that are complete by it, entries that failed in it, and its measures.

    `size` counts the texts that ran and `inputs` those that were answered by them, which are more where some were the
    same. `ended` is when (monotonic clock). `behind` says that more waited when it began, `full` that no batch may be
    larger; of a suspect's neither is said. `gap` is how long, before it, the runner was idle while there was work
    (seconds), `busy_s` what the device's own clock says that it computed since the last batch that told of it, and
    `full_s` how long a full batch, of `max_tokens`, is expected to take. `paused` are the keys of
    entries of which it ran a part, and of which nothing runs now.
    """

    size: int = 0
    inputs: int = 0
    tokens: int = 0
    padded: int = 0
    seconds: float = 0.0
    gap: float = 0.0
    busy_s: float = 0.0
    ended: float = 0.0
    behind: bool = False
    full: bool = False
    full_s: float = 0.0
    max_tokens: int = 0
    done: list[Work] = field(default_factory=list)
    paused: list[str] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Told:
    """Who is told what happens in the pipeline.

    `begun` hears which entries begin to run, or again after a pause, before they do; `ran` what each batch gave.
    `settle` returns when all of this has arrived.
    """

    begun: Callable[[list[str]], None]
    ran: Callable[[Ran], None]
    settle: Callable[[], None]
