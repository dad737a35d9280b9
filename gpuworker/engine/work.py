"""The data of the pipeline: entries, their inputs, and the batches that run them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuworker.ipc.messages import EntryFailure
from gpuworker.policy.composition import WaitingInput
from shared.messages import DEFAULT_OPTIONS, EMBED, Input, Options
from shared.record import Record

if TYPE_CHECKING:
    from gpuworker.backends.base import Encoded, Output
    from gpuworker.ipc.run_table import RunTable


TokenizerKey = tuple[str, Options]
DEFAULT_TOKENIZER_KEY: TokenizerKey = (EMBED, DEFAULT_OPTIONS)
"""Tokenization key of the default options."""


@dataclass(slots=True)
class EntryTask:
    """An entry in the engine: its inputs and their progress.

    Attributes:
        tokenizer_key: the operation, and the options that a tokenizer heeds.
        tokens: of each input, the number of tokens that the model reads.
        truncated: indices of the inputs that were cut to the model's maximum length.
        tokenize_s: how long the tokenizer call took that read these inputs, and perhaps others.
        tokenized_at: when that call ended (monotonic clock).
        outputs: of each input, what the model returned for it.
        values: of each input, what the tokenizer returned for it, as JSON; for TOKENIZER_OPS only.
        num_pending: inputs without an output.
        batch_size: number of texts in the largest batch with inputs of it.
        started_at: when its first batch, or its operation of TOKENIZER_OPS, began (monotonic clock).
        device_s: its share of the time in which its batches ran.
        slot: in the run table.
        cost: estimated tokens of all its inputs, or their number.
        num_retries: how often it was tokenized again after a passing exception.
        closed: whether it has ended here: with a result, a failure, or because the worker dropped it.
    """

    key: str
    inputs: Sequence[Input]
    since: float
    deadline: float
    attempts: int = 0
    bulk: bool = False
    options: Options = DEFAULT_OPTIONS
    op: str = EMBED
    slot: int = 0
    cost: int = 0
    tokenizer_key: TokenizerKey = field(init=False)
    tokens: list[int] = field(default_factory=list)
    truncated: Sequence[int] = ()
    tokenize_s: float = 0.0
    tokenized_at: float = 0.0
    outputs: list[Output | None] = field(default_factory=list)
    values: list[bytes] | None = None
    num_pending: int = 0
    batch_size: int = 0
    started_at: float | None = None
    device_s: float = 0.0
    num_retries: int = 0
    closed: bool = False

    def __post_init__(self) -> None:
        is_default = self.options is DEFAULT_OPTIONS and self.op == EMBED
        key = (self.op, self.options._replace(normalize=None, dimensions=None, parts=()))
        self.tokenizer_key = DEFAULT_TOKENIZER_KEY if is_default else key
        self.outputs = [None] * len(self.inputs)
        self.num_pending = len(self.inputs)


class InputItem(Record, frozen=True):
    """One tokenized input that waits: its index in its entry, when it was ready to run, and how often it ran again."""

    task: EntryTask
    input_index: int
    encoded: Encoded
    waiting: WaitingInput
    ready_at: float
    num_retries: int = 0

    @property
    def content(self) -> object:
        """What the model reads: inputs with equal content have the same vector."""
        value, key = self.task.inputs[self.input_index], self.task.tokenizer_key
        return value if key == DEFAULT_TOKENIZER_KEY else (value, key)


@dataclass(slots=True)
class BatchRow:
    """One text of a batch, and the inputs that it answers: all waiting inputs with the same content."""

    items: list[InputItem]

    @property
    def encoded(self) -> Encoded:
        """The text as the model reads it."""
        return self.items[0].encoded

    @property
    def waiting(self) -> WaitingInput:
        """How the plan sees the row: it waits since its oldest input, and until the deadline of its most urgent one.

        It is bulk if all its inputs are, and belongs to the smallest of their entries.
        """
        first = self.items[0].waiting
        if len(self.items) == 1:
            return first
        since = min(item.waiting.since for item in self.items)
        deadline = min(item.waiting.deadline for item in self.items)
        return first._replace(
            since=since,
            deadline=deadline,
            bulk=all(item.waiting.bulk for item in self.items),
            entry_inputs=min(item.waiting.entry_inputs for item in self.items),
            entry_tokens=min(item.waiting.entry_tokens for item in self.items),
        )


class Batch(NamedTuple):
    """Rows that run at once, collated; or the error that collating them raised."""

    rows: tuple[BatchRow, ...]
    collated: Any
    error: BaseException | None = None

    @property
    def items(self) -> list[InputItem]:
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
    def padded_tokens(self) -> int:
        """Tokens with padding."""
        return max(self.lengths) * len(self.rows)

    def share_out(self, run_s: float) -> None:
        """Adds the run time of the batch to its entries: each row has a share by its tokens, and its inputs divide it.

        Rows without tokens have equal shares.
        """
        lengths = self.lengths
        total = sum(lengths)
        shares = lengths if total else [1] * len(lengths)
        unit_s = run_s / (total or len(lengths))
        for row, share in zip(self.rows, shares, strict=True):
            each_s = unit_s * share / len(row.items)
            for item in row.items:
                item.task.device_s += each_s


@dataclass(slots=True)
class BatchResult:
    """The result of a batch: the entries that it completes, those that failed in it, and its measures.

    Attributes:
        size: texts that ran.
        inputs: inputs that these answered: more than `size` where some had the same content.
        tokens: tokens of the texts, without padding.
        padded_tokens: tokens of the texts, with padding if the batch had any.
        cost: of the inputs that it answered, each an equal share of its entry's.
        run_s: how long the batch ran.
        gap_s: how long the runner was idle before the batch while there was work.
        busy_s: how long the device has computed, by its own clock, since the last batch that reported it.
        ended_at: when the batch ended (monotonic clock).
        has_backlog: whether more inputs waited when it began, and it was not small; False for a suspect.
        is_full: whether no batch may be larger; False for a suspect.
        full_batch_s: how long a batch of `max_batch_tokens` is expected to take.
        max_batch_tokens: maximum tokens of a batch from now on.
        completed: entries of which this batch ran the last input.
        unfinished_keys: keys of entries of which it ran a part and which are not complete.
        failures: entries that get an error.
        num_outputs: inputs for which it has an output.
        errors: the types of the exceptions that the model raised, in the batch and in its parts.
        is_retry: whether all its inputs have failed before with an exception that passes.
    """

    size: int = 0
    inputs: int = 0
    tokens: int = 0
    padded_tokens: int = 0
    cost: float = 0.0
    run_s: float = 0.0
    gap_s: float = 0.0
    busy_s: float = 0.0
    ended_at: float = 0.0
    has_backlog: bool = False
    is_full: bool = False
    full_batch_s: float = 0.0
    max_batch_tokens: int = 0
    completed: list[EntryTask] = field(default_factory=list)
    unfinished_keys: list[str] = field(default_factory=list)
    failures: list[EntryFailure] = field(default_factory=list)
    num_outputs: int = 0
    errors: list[str] = field(default_factory=list)
    is_retry: bool = False


class Reports:
    """Where the pipeline reports to.

    Args:
        send: takes the result of a batch, and what to call when it is sent.
        runs: which entries run.
        flush: returns when every result is sent.
    """

    def __init__(
        self,
        send: Callable[[BatchResult, Callable[[], None]], None],
        runs: RunTable,
        flush: Callable[[], None] = lambda: None,
    ) -> None:
        self._send, self.runs, self.flush = send, runs, flush

    def on_result(self, result: BatchResult, ran: Iterable[EntryTask] = ()) -> None:
        """Sends a result. The runs of entries whose part ran in the batch end when it is sent: see RunTable.end."""
        self._send(result, lambda: self.end(ran))

    def begin(self, tasks: Iterable[EntryTask]) -> None:
        """Notes that a run begins of a part of each entry."""
        self.runs.begin([task.slot for task in tasks])

    def end(self, tasks: Iterable[EntryTask]) -> None:
        """Notes that these runs have ended. Not if one raises: what ends the process is accused."""
        self.runs.end([task.slot for task in tasks])
