"""The messages between a worker and its engine process, as values that do not change, and their one codec. Pure.

A message is the header of a frame. On the wire it is a msgpack array: the name of its class, then its fields in the
order of the class. Nothing is pickled. The values of which a message has many, one for each entry, are named tuples,
which are arrays on the wire too.

The worker sends StartEngine, GrantTurn, AddEntries, DropEntries and Drain; both send SharedMessage and
SharedMessageRead; the engine sends the rest.
Times are seconds of the monotonic clock, which the processes of one host share.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from msgspec import MsgspecError, Struct
from msgspec.msgpack import Decoder, Encoder

from shared.messages import Options, TooLong


class FrameError(ValueError):
    """The bytes that came over the socket are no frame, or its header is no message."""


class EngineEntry(NamedTuple):
    """An entry on its way to the engine. `options` is None for shared.messages.DEFAULT_OPTIONS.

    Each of the `inputs` is a shared.messages.Input; msgspec has no type for texts or bytes.

    A suspect has its number of `attempts`; every other entry has 0. The engine notes the entry's runs in `slot` of the
    run table.
    """

    key: str
    op: str
    inputs: tuple[Any, ...]
    options: Options | None
    since: float
    deadline: float
    attempts: int
    bulk: bool
    slot: int
    cost: int


class EntryResult(NamedTuple):
    """A completed entry. Its part of the payload has `size` bytes.

    The payload holds vectors of `dim` float32 numbers; if `dim` is 0, a msgpack list of JSON values. `counts` has the
    number of vectors of each input, and is empty unless an input may have several. `tokens` has the number of tokens of
    each input. The tokenizer call that read the inputs took `tokenize_s` and ended at `tokenized_at`; the first batch
    of the entry began at `started_at`. `truncated` has the indices of the inputs that were cut; `batch_size` is the
    number of texts in the largest of its batches. `device_s` is its share of the time in which these ran.
    """

    key: str
    size: int
    dim: int
    counts: tuple[int, ...]
    tokens: tuple[int, ...]
    tokenize_s: float
    tokenized_at: float
    started_at: float
    truncated: tuple[int, ...] = ()
    batch_size: int = 0
    device_s: float = 0.0


class EntryFailure(NamedTuple):
    """An entry that gets an error: a code of shared.errors and a message for the client.

    If it becomes a dead letter, `dead_after` is the number of its runs. If one of its inputs is at fault, `input_index`
    is the index of that input in the entry. `exception` is the type of what the model raised, if it did. Of an `unrun`
    entry no input has run. `too_long` is as in shared.messages.Failure; `device_s` is as that of EntryResult;
    `is_loggable` is as that of shared.messages.FailureOrigin.
    """

    key: str
    code: str
    message: str
    dead_after: int | None = None
    input_index: int | None = None
    exception: str = ""
    unrun: bool = False
    too_long: TooLong | None = None
    device_s: float = 0.0
    is_loggable: bool = False


class _Message(Struct, frozen=True, array_like=True, tag=True, forbid_unknown_fields=True):
    """What all messages have in common."""


class StartEngine(_Message, frozen=True):
    """The first message of all: the device to run on, and the name of the lock to take on this host; empty: no lock."""

    device: str
    lock: str


class GrantTurn(_Message, frozen=True):
    """The engine may use the GPU, after it has taken this lock on its host."""

    lock: str


class SharedMessage(_Message, frozen=True):
    """A frame of `size` bytes is in the sender's shared memory at offset `at`, until SharedMessageRead."""

    at: int
    size: int


class AddEntries(_Message, frozen=True):
    """Entries to run."""

    entries: tuple[EngineEntry, ...]


class DropEntries(_Message, frozen=True):
    """Keys of entries that need no answer any more."""

    keys: tuple[str, ...]


class Drain(_Message, frozen=True):
    """The engine is to return the entries that it has not started, by EntriesReturned, and finish the others."""


class Ready(_Message, frozen=True):
    """The engine has loaded the model and takes entries.

    The fields are those of the backend; `int8_ranges` is what backends.int8_ranges has read, with which the revision is
    another one; `pid` is that of the engine's process.
    """

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
    prompts: tuple[str, ...] = ()
    normalizes: bool = False
    empty_prompts: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    activation: str = ""
    int8_ranges: bytes = b""
    pid: int = 0


class LoadFailed(_Message, frozen=True):
    """The model cannot be loaded, for the reason in `message`."""

    message: str


class EntriesReturned(_Message, frozen=True):
    """Keys of the entries that the engine had not started when it received Drain."""

    keys: tuple[str, ...]


class TurnRequested(_Message, frozen=True):
    """The engine has work and waits for its turn on the GPU."""


class TurnStarted(_Message, frozen=True):
    """The engine has its turn, and the lock of its host."""


class TurnEnded(_Message, frozen=True):
    """The engine has left the GPU."""


class SharedMessageRead(_Message, frozen=True):
    """The frame in shared memory at offset `at` has been read: its sender may use the memory again."""

    at: int


class BatchCompleted(_Message, frozen=True):
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
    cost: float = 0.0
    run_s: float = 0.0
    gap_s: float = 0.0
    busy_s: float = 0.0
    ended_at: float = 0.0
    has_backlog: bool = False
    is_full: bool = False
    full_batch_s: float = 0.0
    max_batch_tokens: int = 0
    results: tuple[EntryResult, ...] = ()
    unfinished_keys: tuple[str, ...] = ()
    failures: tuple[EntryFailure, ...] = ()
    num_outputs: int = 0
    errors: tuple[str, ...] = ()
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


_ENCODER = Encoder()
_DECODER: Decoder[Message] = Decoder(Message)


def encode_message(message: Message) -> bytes:
    """Returns a message as bytes."""
    return _ENCODER.encode(message)


def decode_message(data: bytes | bytearray | memoryview) -> Message:
    """Returns the message that was encoded; its sequences are tuples.

    Raises:
        FrameError: the bytes are not msgpack, name no message, or a field is missing or has the wrong type.
    """
    try:
        return _DECODER.decode(data)
    except (MsgspecError, ValueError, RecursionError) as error:
        reason = "an unknown kind" if "$[0]" in str(error) else str(error)  # that of a kind quotes what was received
        raise FrameError(f"a header is no message: {reason}") from None
