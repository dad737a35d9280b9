"""What gateways and workers tell each other, as values that do not change.

Most of what each request has of its own is a named tuple: one is made in a third of the time of a frozen dataclass.

A request of many inputs travels as several entries. `position` is the index, in its request, of an entry's first
input; replies carry it back, and the first answer for a position is the one that counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

VERSION = 1
"""Version of the entry and reply format. A worker hands back entries of a version it does not know."""

MAX_TOKENS = 2**52
"""No bound in tokens."""

EMBED, EMBED_ALL, TOKENIZE, DECODE, PREDICT = OPS = ("embed", "embed_all", "tokenize", "decode", "predict")
"""What is to be done with each input: one vector; one for each of its tokens; its tokens; the text of token ids; or
whatever a function makes of it."""

TOKENIZER_OPS = (TOKENIZE, DECODE)
"""What a tokenizer alone can do, while the device does something else."""

Input = str | bytes
"""A text, which for PREDICT is JSON; or, as uint32 in little-endian order, the ids of its tokens as the model's own
tokenizer gives them."""


class Options(NamedTuple):
    """How inputs are read, and how they become vectors.

    `prompt_name` picks one of the model's prompts, which goes before each text; None is the one that the model has for
    any text. `normalize` makes vectors of length 1, or leaves them as they are; None does what the model does.
    `dimensions` keeps so many of the first numbers of each vector, before that. An input that is longer than the model
    takes is cut at the end that `truncate` names; with "no" it is refused. `special_tokens` has a tokenizer add those
    that the model wants, and leaves them in the text that token ids make.
    """

    prompt_name: str | None = None
    normalize: bool | None = None
    dimensions: int | None = None
    truncate: Literal["right", "left", "no"] = "right"
    special_tokens: bool = True


DEFAULT_OPTIONS = Options()
"""What the model does by itself."""


@dataclass(frozen=True, slots=True)
class Body:
    """The work itself: an operation on some inputs."""

    op: str
    inputs: tuple[Input, ...]
    options: Options = DEFAULT_OPTIONS


class NewEntry(NamedTuple):
    """An entry before it is in the stream."""

    position: int
    n: int
    cost: int
    body: bytes


class Ref(NamedTuple):
    """Where an entry is: its lane (index into `keys.LANES`) and its stream id; with what it weighs."""

    lane: int
    entry_id: bytes
    n: int
    cost: int


class Entry(NamedTuple):
    """An entry as a worker claimed it. `attempts` counts the runs of it that began and did not end.

    One with a `revision` is for workers whose model is of it: the rest of its request was run by these. One of a `job`
    is answered into that, whose id is its request's.
    """

    ref: Ref
    version: int
    request_id: str
    position: int
    deadline_ms: int
    bell: str
    traceparent: str
    body: bytes
    attempts: int = 0
    revision: str = ""
    job: bool = False


class Timing(NamedTuple):
    """How a reply came about: milliseconds in the queue, in the model, and in its tokenizer; inputs in its batch."""

    queue_ms: float = 0.0
    inference_ms: float = 0.0
    batch_size: int = 0
    tokenize_ms: float = 0.0


class Vectors(NamedTuple):
    """The answer to an entry: vectors of `dim` little-endian float32, back to back.

    There is one for each of its n inputs, or as many as `counts` has for each. The model has read so many `tokens` of
    each input, special ones included; what was cut is not among them. `revision` names the model and all that its
    vectors depend on.
    """

    request_id: str
    position: int
    n: int
    dim: int
    data: bytes
    timing: Timing = Timing()
    tokens: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    revision: str = ""


class Values(NamedTuple):
    """The answer to an entry that asks for no vectors: for each of its n inputs a value, as JSON."""

    request_id: str
    position: int
    n: int
    values: tuple[bytes, ...]
    timing: Timing = Timing()
    tokens: tuple[int, ...] = ()


class Failure(NamedTuple):
    """The other answer: an error code of shared.errors and a message for the client."""

    request_id: str
    position: int
    n: int
    code: str
    message: str


Result = Vectors | Values
Reply = Result | Failure


STANDBY, LOADING, READY, DRAINING = STATES = ("standby", "loading", "ready", "draining")
"""What a worker may be: one on standby waits for a GPU that another holds."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a worker says of itself once a second.

    `state` is one of STATES; `tokens_per_s` is the engine's measured rate (0 while unknown), and
    `bulk_tokens_per_s` what interactive requests leave of it for bulk;
    `holds` counts entries claimed and not committed, `begun` those whose run has begun. What the model is, as far as it
    says: the format of its numbers, how it makes one vector of its tokens', and how many tokens an input may have; with
    the bounds of a batch; and its `revision`, which is another if its vectors may be; and the `commit` of a
    model that comes from the hub. These are 0 or empty while it
    loads. `gpu` is what the driver calls it, where it tells of one, with its memory and the driver's version.
    """

    worker: str
    host: str
    pid: int
    device: str
    model: str
    dim: int
    state: str
    tokens_per_s: float
    holds: int
    begun: int
    started_ms: int
    bulk_tokens_per_s: float = 0.0
    dtype: str = ""
    pooling: str = ""
    max_input_tokens: int = 0
    max_batch_tokens: int = 0
    max_batch_size: int = 0
    revision: str = ""
    commit: str = ""
    gpu: str = ""
    gpu_uuid: str = ""
    gpu_memory_bytes: int = 0
    driver: str = ""
