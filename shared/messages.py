"""Messages between gateways and workers, as immutable values.

Values created for each request are records (see shared.record): to create a frozen dataclass takes many times as long.

A request of many inputs travels as several entries. `position` is the index, in its request, of an entry's first input,
where inputs that the gateway itself answers do not count; replies repeat it, and the first answer for a position is the
one that counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from shared.activity import NO_ACTIVITY, Activity
from shared.record import Record

VERSION = 1
"""Version of the entry and reply format. A worker hands back entries of a version that it does not know."""

MAX_OUTPUTS_BYTES = 32 * 2**20
"""Maximum size of an entry's outputs. A reply has to pass through Redis, and a longer one would never be read."""

MAX_TOKENS = 2**52
"""No bound in tokens."""

EMBED, EMBED_ALL, TOKENIZE, DECODE, PREDICT, SCORE, CLASSIFY, EMBED_SPARSE, EMBED_PARTS = OPS = (
    "embed",
    "embed_all",
    "tokenize",
    "decode",
    "predict",
    "score",
    "classify",
    "embed_sparse",
    "embed_parts",
)
"""The operation on each input: one vector; a vector for each token; its tokens; the text of token ids; the result of a
function; the one logit of a reranker; the logit of each label; a weight for some tokens of the vocabulary; or those of
PARTS that its options name, from one pass of the model."""

DENSE, SPARSE, MULTI_VECTOR = PARTS = ("dense", "sparse", "multi_vector")
"""What a model of embeddings may return of a text: one vector; a weight for some tokens of the vocabulary; or a vector
for each token, which late interaction compares."""

PART_OPS = {EMBED: DENSE, EMBED_SPARSE: SPARSE, EMBED_ALL: MULTI_VECTOR}
"""The operations whose output is one part. The outputs of EMBED_ALL are the part MULTI_VECTOR of a
model that has this part, and otherwise the vectors of tokens before pooling."""

ROUTES = {
    EMBED: "POST /embed",
    PREDICT: "POST /predict",
    SCORE: "POST /rerank",
    CLASSIFY: "POST /classify",
    EMBED_SPARSE: "POST /embed_sparse",
}
"""The usual route of an operation; a job has its texts for EMBED, and its inputs for PREDICT."""

SIGMOID, SOFTMAX = "sigmoid", "softmax"
"""How a reranker or classifier makes scores of its logits: see Heartbeat."""

TEXT_OPS = (EMBED, EMBED_ALL, TOKENIZE, DECODE)
"""The operations of a model of embeddings; a function has PREDICT alone."""

CLASSIFIER_OPS = (CLASSIFY, TOKENIZE, DECODE)
RERANKER_OPS = (SCORE, *CLASSIFIER_OPS)
"""A reranker is a classifier with one label: both run alike, and only a reranker gives texts an order."""

SPARSE_OPS = (EMBED_SPARSE, TOKENIZE, DECODE)
"""The operations of a sparse encoder."""

MULTI_VECTOR_OPS = (EMBED_ALL, EMBED_PARTS, SCORE, TOKENIZE, DECODE)
"""The operations of a multi-vector encoder: it scores pairs by late interaction."""

JSON_OPS = (PREDICT, EMBED_SPARSE, EMBED_PARTS)
"""Operations whose batches return bytes for each input: JSON, and for EMBED_PARTS what shared.parts encodes."""

VECTOR_OPS = (EMBED, SCORE, CLASSIFY)
"""Operations that return one vector for each input, of the length that the worker reports."""

TOKENIZER_OPS = (TOKENIZE, DECODE)
"""Operations that need only the tokenizer, while the device does other work."""

NO_RESULTS = -1
"""In place of the maximum bytes of a job's results in the results stream: it has neither results nor a link to them."""

Input = str | bytes
"""A text, which for PREDICT is JSON; or bytes: token ids of the model's own tokenizer, as little-endian uint32, and for
PREDICT a binary input (shared.codec.encode_binary)."""

BYTES, NPY = BINARY_KINDS = ("bytes", "npy")
"""The kinds of binary inputs: plain bytes, and an array in .npy format."""


class Options(NamedTuple):
    """How inputs are read, and how they become vectors.

    `prompt_name` selects one of the model's prompts, which is prepended to each text; None selects the model's default
    prompt, and "" no prompt. `normalize` makes vectors of length 1, or leaves them unchanged; None does what the model
    does. `dimensions` truncates vectors to this many dimensions, before normalization. An input that is too long for
    the model is truncated at the side that `truncate` names; with "no" it is rejected. `special_tokens` has the
    tokenizer add the special tokens of the model, and keeps them in the text decoded from token ids. For SCORE and
    CLASSIFY, `query` is the first text of a pair whose second text is the input; None: there is no pair. For
    EMBED_PARTS, `parts` are those to return.

    `instruction` says in words what the model is to do: in place of the task in one of its prompts, or, of a reranker
    with a template for chats, as the message of the system. `max_tokens` is the maximum of an input or a pair, with
    special tokens; at most the model's. Of a pair, the query is first cut to `max_query_tokens`, and the input to
    `max_document_tokens`, both without special tokens, at the side of `truncate`. None: there is none of these.
    """

    prompt_name: str | None = None
    normalize: bool | None = None
    dimensions: int | None = None
    truncate: Literal["right", "left", "no"] = "right"
    special_tokens: bool = True
    query: str | None = None
    instruction: str | None = None
    max_tokens: int | None = None
    max_query_tokens: int | None = None
    max_document_tokens: int | None = None
    parts: tuple[str, ...] = ()


DEFAULT_OPTIONS = Options()
"""The model's defaults."""


class Body(NamedTuple):
    """The work: an operation on inputs."""

    op: str
    inputs: tuple[Input, ...]
    options: Options = DEFAULT_OPTIONS


class NewEntry(NamedTuple):
    """An entry before it is in the stream. `counted_bytes` count against the queue's bound."""

    position: int
    n: int
    cost: int
    body: bytes
    counted_bytes: int = 0


class Ref(NamedTuple):
    """Location of an entry: its lane (index into `keys.LANES`) and its stream id; with its inputs, cost and bytes."""

    lane: int
    entry_id: bytes
    n: int
    cost: int
    counted_bytes: int = 0


class Entry(NamedTuple):
    """An entry as a worker claimed it. `attempts` counts its runs that began and did not end.

    An entry with a `revision` is for workers whose model has it: the rest of its request was run by these. The answer
    to an entry of a `job` goes into the job, whose id is the request id. If its request is `num_coalesced` requests of
    clients, its gateway may send each by itself should it fail. `tenant` is "" for clients without one.
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
    num_coalesced: int = 1
    tenant: str = ""


class Timing(Record, frozen=True):
    """Timing of a reply: milliseconds in the queue, in the model, and in its tokenizer; inputs in its batch."""

    queue_ms: float = 0.0
    inference_ms: float = 0.0
    batch_size: int = 0
    tokenize_ms: float = 0.0


class Vectors(Record, frozen=True):
    """The answer to an entry: vectors of `dim` little-endian float32, back to back.

    There is one vector for each of its n inputs, or the number that `counts` holds for each. `tokens` holds the number
    of tokens that the model read of each input, including special tokens and excluding truncated ones. `revision` names
    the model and everything that its vectors depend on. `truncated` holds the indices, in the entry, of the inputs that
    were cut to the model's maximum length.
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
    truncated: tuple[int, ...] = ()


class Values(Record, frozen=True):
    """The answer to an entry whose operation returns no vectors: for each of its n inputs a value, as in JSON_OPS.

    `tokens`, `revision` and `truncated` are as those of Vectors.
    """

    request_id: str
    position: int
    n: int
    values: tuple[bytes, ...]
    timing: Timing = Timing()
    tokens: tuple[int, ...] = ()
    revision: str = ""
    truncated: tuple[int, ...] = ()


class FailureOrigin(NamedTuple):
    """Where a failure comes from, for the log of the gateway, without any text of a client.

    `worker` has answered; `exception` is the type of what its model raised, if it did. The entry may be a dead letter.
    Of an `unrun` entry no input has run, so that it costs its tenant nothing. The message of a failure that
    `is_loggable` quotes no text of a client, so that logs may have it.
    """

    worker: str = ""
    exception: str = ""
    is_dead: bool = False
    unrun: bool = False
    is_loggable: bool = False


UNKNOWN_ORIGIN = FailureOrigin()


class TooLong(NamedTuple):
    """Of an input that is too long and must not be cut: its tokens, and the maximum of the model."""

    tokens: int
    max_tokens: int


class Failure(Record, frozen=True):
    """The answer to an entry that failed: an error code of shared.errors and a message for the client.

    If one of its inputs is known to be at fault, `input_index` is the index of that input in the entry; `too_long` says
    so of an input, for clients whose APIs name its length in their own words.
    """

    request_id: str
    position: int
    n: int
    code: str
    message: str
    input_index: int | None = None
    origin: FailureOrigin = UNKNOWN_ORIGIN
    too_long: TooLong | None = None


Result = Vectors | Values
Reply = Result | Failure


STANDBY, LOADING, READY, FAILING, DRAINING = STATES = ("standby", "loading", "ready", "failing", "draining")
"""The states of a worker: one on standby waits for a GPU that another worker holds; one that is failing has a model
that fails on every batch, and claims nothing for a while."""


DOES_NOT_LOAD = "its model does not load"
"""What a failing worker names in place of an exception if its model could not be loaded, so that its process ended."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a worker reports once a second.

    `state` is one of STATES; `tokens_per_s` is the engine's measured rate (0 while unknown), and `bulk_tokens_per_s`
    the part that interactive requests leave for bulk; `holds` counts entries claimed and not committed, `begun` those
    whose run has begun; `long_tokens` are those of long interactive entries that it holds, which short ones go before.
    The model's properties, as far as it reports them: the format of its numbers, the pooling of token vectors, and the
    maximum tokens of an input; with the bounds of a batch; its `revision`, which changes if its vectors may change; and
    the `commit` of a model that comes from the hub. These are 0 or empty while the model loads. `gpu` is the driver's
    name of the GPU, if it reports one, with its memory and the driver's version. A worker that shares GPUs by leases
    names their pool, and the slots of it that it accepts. `max_input_bytes` is the limit of an input of its function; 0
    if it sets none. A worker that is `failing` has the type of its model's last exception there, and tries again in
    `retry_s`; while it tries, with one entry, it is ready and still has it. `ops` are the operations that the model
    offers, also while it loads; empty if an older worker does not report them, and while a model of the hub loads.
    `activity` is what the worker did in the last seconds. `prompts` are the names of the model's prompts; None while it
    loads, or if there are too many to report; `empty_prompts` are those of them without a text. `normalizes`: whether
    its vectors have length 1 by default; None while it loads. A worker that has ended because its model does not load
    leaves the reason in `load_error`, in a heartbeat that is its host's; it is for the operator, since it may name
    paths. A reranker or classifier has the names of its `labels`, one for each number of its vectors (none if they are
    too long to report), and the `activation` that makes scores of these: sigmoid or softmax. `int8_ranges` has the
    smallest and the largest number of each dimension, for vectors as int8 and uint8: 2 * `dim` little-endian float32 in
    base64; empty if the worker has no such file. `memory_bytes` is the resident memory of the engine's process, and
    `gpu_used_bytes` what all processes use of the GPU's memory; 0 if unknown.
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
    long_tokens: int = 0
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
    gpu_pool: str = ""
    gpu_slots: tuple[str, ...] = ()
    max_input_bytes: int = 0
    failing: str = ""
    retry_s: float = 0.0
    ops: tuple[str, ...] = ()
    activity: Activity = NO_ACTIVITY
    prompts: tuple[str, ...] | None = None
    normalizes: bool | None = None
    empty_prompts: tuple[str, ...] = ()
    load_error: str = ""
    labels: tuple[str, ...] = ()
    activation: str = ""
    int8_ranges: str = ""
    memory_bytes: int = 0
    gpu_used_bytes: int = 0
