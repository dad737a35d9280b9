"""The messages between a worker and its engine process, as values that do not change, and their one codec. Pure.

A message is the header of a frame. On the wire it is a msgpack array: the name of its class, then its fields in the
order of the class. Nothing is pickled. The values of which a message has many, one for each entry, are named tuples:
these are made in a third of the time of a frozen dataclass, and pack as arrays.

The worker sends StartEngine, GrantTurn, AddEntries, DropEntries and Drain; both send SharedMessage and
SharedMessageRead; the engine sends the rest.
Times are seconds of the monotonic clock, which the processes of one host share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter, contains
from typing import Any, NamedTuple, TypeAlias, get_args, get_type_hints

import msgpack

from shared.messages import Input, Options


class FrameError(ValueError):
    """The bytes that came over the socket are no frame, or its header is no message."""


class EngineEntry(NamedTuple):
    """An entry on its way to the engine. `options` is None for shared.messages.DEFAULT_OPTIONS.

    A suspect has its number of `attempts`; every other entry has 0. The engine notes the entry's runs in `slot` of the
    run table.
    """

    key: str
    op: str
    inputs: Sequence[Input]
    options: Options | None
    since: float
    deadline: float
    attempts: int
    bulk: bool
    slot: int


class EntryResult(NamedTuple):
    """A completed entry. Its part of the payload has `size` bytes.

    The payload holds vectors of `dim` float32 numbers; if `dim` is 0, a msgpack list of JSON values. `counts` has the
    number of vectors of each input, and is empty unless an input may have several. `tokens` has the number of tokens of
    each input. The tokenizer call that read the inputs took `tokenize_s` and ended at `tokenized_at`; the first batch
    of the entry began at `started_at`. `truncated` has the indices of the inputs that were cut; `batch_size` is the
    number of texts in the largest of its batches.
    """

    key: str
    size: int
    dim: int
    counts: Sequence[int]
    tokens: Sequence[int]
    tokenize_s: float
    tokenized_at: float
    started_at: float
    truncated: Sequence[int] = ()
    batch_size: int = 0


class EntryFailure(NamedTuple):
    """An entry that gets an error: a code of shared.errors and a message for the client.

    If it becomes a dead letter, `dead_after` is the number of its runs. If one of its inputs is at fault, `input_index`
    is the index of that input in the entry. `exception` is the type of what the model raised, if it did.
    """

    key: str
    code: str
    message: str
    dead_after: int | None = None
    input_index: int | None = None
    exception: str = ""


@dataclass(frozen=True, slots=True)
class StartEngine:
    """The first message of all: the device to run on, and the name of the lock to take on this host; empty: no lock."""

    device: str
    lock: str


@dataclass(frozen=True, slots=True)
class GrantTurn:
    """The engine may use the GPU, after it has taken this lock on its host."""

    lock: str


@dataclass(frozen=True, slots=True)
class SharedMessage:
    """A frame of `size` bytes is in the sender's shared memory at offset `at`, until SharedMessageRead."""

    at: int
    size: int


@dataclass(frozen=True, slots=True)
class AddEntries:
    """Entries to run."""

    entries: Sequence[EngineEntry]


@dataclass(frozen=True, slots=True)
class DropEntries:
    """Keys of entries that need no answer any more."""

    keys: Sequence[str]


@dataclass(frozen=True, slots=True)
class Drain:
    """The engine is to return the entries that it has not started, by EntriesReturned, and finish the others."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine has loaded the model and takes entries. The fields are those of the backend."""

    model: str = ""
    dim: int = 0
    device: str = ""
    revision: str = ""
    commit: str = ""
    dtype: str = ""
    pooling: str = ""
    max_input_tokens: int = 0
    max_batch_tokens: int = 0
    packs: bool = False
    prompts: Sequence[str] = ()
    normalizes: bool = False


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """The model cannot be loaded, for the reason in `message`."""

    message: str


@dataclass(frozen=True, slots=True)
class EntriesReturned:
    """Keys of the entries that the engine had not started when it received Drain."""

    keys: Sequence[str]


@dataclass(frozen=True, slots=True)
class TurnRequested:
    """The engine has work and waits for its turn on the GPU."""


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """The engine has its turn, and the lock of its host."""


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The engine has left the GPU."""


@dataclass(frozen=True, slots=True)
class SharedMessageRead:
    """The frame in shared memory at offset `at` has been read: its sender may use the memory again."""

    at: int


@dataclass(frozen=True, slots=True)
class BatchCompleted:
    """The result of a batch. The payload has the outputs of each entry in `results`, in order.

    A long result takes several messages with the same number in `batch`. All but the last have `more`: their measures
    do not count, and `unfinished_keys`, `failures` and `errors` come with the last. The measures are those of
    engine.work.BatchResult.
    """

    batch: int = 0
    more: bool = False
    size: int = 0
    inputs: int = 0
    tokens: int = 0
    padded_tokens: int = 0
    run_s: float = 0.0
    gap_s: float = 0.0
    busy_s: float = 0.0
    ended_at: float = 0.0
    has_backlog: bool = False
    is_full: bool = False
    full_batch_s: float = 0.0
    max_batch_tokens: int = 0
    results: Sequence[EntryResult] = ()
    unfinished_keys: Sequence[str] = ()
    failures: Sequence[EntryFailure] = ()
    num_outputs: int = 0
    errors: Sequence[str] = ()
    is_retry: bool = False


TurnReport: TypeAlias = TurnRequested | TurnStarted | TurnEnded
Message: TypeAlias = (
    StartEngine
    | GrantTurn
    | SharedMessage
    | AddEntries
    | DropEntries
    | Drain
    | Ready
    | LoadFailed
    | EntriesReturned
    | TurnRequested
    | TurnStarted
    | TurnEnded
    | SharedMessageRead
    | BatchCompleted
)


class _Format(NamedTuple):
    """How the messages of one class are on the wire. `rows` has the positions of fields that hold many named tuples."""

    message_class: Callable[..., Message]
    values_of: Callable[[Message], Sequence[Any]]
    names: tuple[str, ...]
    types: tuple[tuple[type, ...], ...]
    rows: tuple[tuple[int, Callable[[Any], tuple[Any, ...]]], ...]


def encode_message(message: Message) -> bytes:
    """Returns a message as bytes."""
    kind = type(message).__name__
    packed: bytes = msgpack.packb([kind, *_FORMATS[kind].values_of(message)])
    return packed


def decode_message(data: bytes | bytearray | memoryview) -> Message:
    """Returns the message that was encoded.

    The types of a message's fields are checked, and the number of fields of each row, but not the fields of the rows:
    there are many, and the process at the other end is our own.

    Raises:
        FrameError: the bytes are not msgpack within its limits, name no message, or a field is missing or malformed.
    """
    try:
        values = msgpack.unpackb(data, use_list=False, max_ext_len=0)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise FrameError(f"a header is not msgpack: {type(error).__name__}") from None
    if type(values) is not tuple or not values or type(values[0]) is not str:
        raise FrameError("a header is not an array that begins with the kind of its message")
    kind, *fields = values
    if kind not in _FORMATS:
        raise FrameError(f"a message of unknown kind {kind!r}")
    message_class, _, names, types, rows = _FORMATS[kind]
    if len(fields) != len(names):
        raise FrameError(f"{kind} has {len(names)} fields, not {len(fields)}")
    if not all(map(contains, types, map(type, fields))):
        name = next(name for name, allowed, each in zip(names, types, fields, strict=True) if type(each) not in allowed)
        raise FrameError(f"field {name!r} of {kind} is malformed")
    for index, decode_rows in rows:
        try:
            fields[index] = decode_rows(fields[index])
        except (TypeError, ValueError):
            raise FrameError(f"field {names[index]!r} of {kind} is malformed") from None
    return message_class(*fields)


def _rows_of(row_class: type[tuple[Any, ...]]) -> Callable[[Any], tuple[Any, ...]]:
    num_fields = len(get_type_hints(row_class))

    def decode(rows: Any) -> tuple[Any, ...]:  # noqa: ANN401 - it is checked here
        if rows and (set(map(type, rows)) != {tuple} or set(map(len, rows)) != {num_fields}):
            raise TypeError
        # Not `_make`, which counts the fields again and takes twice the time.
        return tuple(map(tuple.__new__, repeat(row_class), rows))

    return decode


_entry_rows = _rows_of(EngineEntry)


def _decode_entries(rows: object) -> tuple[EngineEntry, ...]:
    entries = _entry_rows(rows)
    return tuple([e if e.options is None else e._replace(options=Options._make(e.options)) for e in entries])


_TYPES: dict[Any, tuple[type, ...]] = {str: (str,), int: (int,), float: (float, int), bool: (bool,)}
"""Types on the wire, by type of the field; all others are tuples. A float may be an int; a bool is no int."""

_ROWS: dict[Any, Callable[[Any], tuple[Any, ...]]] = {
    Sequence[EngineEntry]: _decode_entries,
    Sequence[EntryResult]: _rows_of(EntryResult),
    Sequence[EntryFailure]: _rows_of(EntryFailure),
}


def _format_of(message_class: type[Any]) -> _Format:
    hints = get_type_hints(message_class)
    rows = tuple((index, _ROWS[each]) for index, each in enumerate(hints.values()) if each in _ROWS)
    names, types = tuple(hints), tuple(_TYPES.get(each, (tuple,)) for each in hints.values())
    return _Format(message_class, _getter_of(names), names, types, rows)


def _getter_of(names: tuple[str, ...]) -> Callable[[Message], Sequence[Any]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda message: [getattr(message, name) for name in names]  # for one name, an attrgetter returns no tuple


_FORMATS = {each.__name__: _format_of(each) for each in get_args(Message)}
