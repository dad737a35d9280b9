"""A client's request and its result, independent of the dialect. Pure.

A dialect builds an `InferenceRequest` from a body, with the checks of api.dialects.parsing. The dispatcher turns
the request into an `InferenceResult`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from api.dialects.long_text import CUT, IN_CHUNKS
from api.dialects.quantization import FLOAT, WHOLE_NUMBERS, OutputType
from api.tenants import ANONYMOUS, Tenant
from shared.errors import RequestError
from shared.keys import INTERACTIVE
from shared.messages import CLASSIFY, DEFAULT_OPTIONS, EMBED, SCORE, Failure, Input, Options, Reply
from shared.record import Record

MAX_TIMEOUT_MS = 300_000
TIMEOUT_HEADER, PRIORITY_HEADER, MODEL_HEADER, PREFER_HEADER = "x-timeout-ms", "x-priority", "x-model", "prefer"
REVISION_HEADER = "x-model-revision"
"""Header of a request that is for one revision of its model, and of an answer: the revision that gave it."""

TRUNCATED_HEADER = "x-truncated-inputs"
"""Header of an answer: the number of inputs that were cut to the model's maximum length, if there are any."""

MAX_MODEL = 256
"""Maximum length of a model's name, in characters."""

NO_INPUT_ERRORS: Mapping[int, RequestError] = MappingProxyType({})


class Ranking(NamedTuple):
    """How an answer ranks texts: the best `top_n` of them (None: all), with or without the texts themselves.

    With `raw`, scores are the logits of the model, otherwise these after its activation.
    """

    top_n: int | None = None
    with_texts: bool = False
    raw: bool = False


class Labels(NamedTuple):
    """The labels of a model, one for each logit, and the activation that makes scores of these: see Heartbeat."""

    names: tuple[str, ...] = ()
    activation: str = ""


class Stamp(NamedTuple):
    """The id of an answer, and when it was made (seconds since the epoch), for dialects that report these."""

    request_id: str = ""
    created_s: int = 0


class Span(NamedTuple):
    """A chunk of a text: the characters from `start` up to `stop`, which is not part of it."""

    start: int
    stop: int


class InferenceRequest(Record, frozen=True):
    """A client's request.

    `op` is one of messages.OPS, and `lane` an index of keys.LANES. If `partial`, the answer may lack the inputs that
    fail; `input_errors` are those of inputs that are invalid, so that no worker need try them, by index. `single`,
    `base64` and `output_types` set the form of the vectors in the answer: no types stand for numbers without the name
    of a type. `input_type` says what texts are for, and is resolved to one of the model's prompts; `long_text` is one
    of api.dialects.long_text. `model` is the client's name for the model, if it names one. `tenant` is the API client
    that the request counts for. If these are only some inputs of the client's request, `indices` are their indices in
    it; an error names an input by these. `ranking`, `labels` and `stamp` are for the answer. If pairs have different
    first texts, `queries` has these for all inputs (None: no pair), in place of the one in `options`. `int8_ranges` are
    those of the model's vectors as int8, if its workers have any: see api.dialects.quantization. `was_accepted`: a
    shard that is lost had accepted it, so metrics have counted it. `revision` is the only one of the model that may
    answer, "" for any. `parts` are those of each text's embedding in the answer, in place of one vector.
    """

    inputs: tuple[Input, ...]
    timeout_ms: int
    lane: int = INTERACTIVE
    options: Options = DEFAULT_OPTIONS
    op: str = EMBED
    partial: bool = False
    input_errors: Mapping[int, RequestError] = NO_INPUT_ERRORS
    single: bool = False
    base64: bool = False
    model: str | None = None
    tenant: Tenant = ANONYMOUS
    indices: Sequence[int] = ()
    output_types: Sequence[OutputType] = (FLOAT,)
    input_type: str | None = None
    long_text: str = CUT
    queries: tuple[str | None, ...] = ()
    ranking: Ranking = Ranking()
    labels: Labels = Labels()
    stamp: Stamp = Stamp()
    was_accepted: bool = False
    int8_ranges: bytes = b""
    revision: str = ""
    parts: tuple[str, ...] = ()

    @property
    def needs_facts(self) -> bool:
        """Whether its answer depends on what workers report of the model that gave the result."""
        return self.op in (CLASSIFY, SCORE) or not WHOLE_NUMBERS.isdisjoint(self.output_types)

    @property
    def needs_model(self) -> bool:
        """Whether it needs what only a worker that has loaded the model knows: prompts, maximum length, or int8 ranges.

        The ranges are for whole vectors: with others, those of fewer dimensions would be refused once they are there.
        """
        is_cut = self.options.dimensions is not None and not WHOLE_NUMBERS.isdisjoint(self.output_types)
        return is_cut or self.input_type is not None or self.long_text in IN_CHUNKS


class InferenceResult(Record, frozen=True):
    """The result of a request: a reply for each entry, in order, and the means of the entries' times (ms).

    `tokens` counts the tokens that the model has read. A failed entry of a `partial` request has no times. `truncated`
    are the indices of the inputs that were cut to the model's maximum length, in order. If the inputs ran in chunks,
    `spans` has those of each, and `parts` have their vectors.
    """

    parts: Sequence[Reply]
    queue_ms: float = 0.0
    inference_ms: float = 0.0
    batch_size: int = 0
    tokens: int = 0
    tokenize_ms: float = 0.0
    truncated: Sequence[int] = ()
    spans: Sequence[Sequence[Span]] = ()

    @property
    def revision(self) -> str:
        """The revision of the model that gave it; "" if no worker has reported one.

        The outputs of a function may come from several, which are separated by commas.
        """
        if len(self.parts) == 1:  # as for most requests
            [part] = self.parts
            return "" if isinstance(part, Failure) else part.revision
        revisions = {each.revision for each in self.parts if not isinstance(each, Failure)}
        return ",".join(sorted(revisions - {""}))
