"""The interface between the engine and a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypedDict

from gpuworker.functions import InputRefusedError
from shared import messages
from shared.messages import DEFAULT_OPTIONS, EMBED, Input, Options, TooLong

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector: TypeAlias = NDArray[np.float32]
    Output: TypeAlias = Vector | bytes
    Outputs: TypeAlias = Vector | Sequence[Vector] | Sequence[bytes]
    """Of an input, and of a batch. An array holds one vector, several, or one for each input."""

__all__ = [
    "Backend",
    "Encoded",
    "InputRefusedError",
    "InputTooLongError",
    "ModelOutputError",
    "OneInputError",
    "PartsBackend",
    "Token",
    "UnsupportedError",
]

TEXT_OPS = frozenset(messages.TEXT_OPS)
"""The operations of models of texts."""


MODEL_ERRORS = (Exception, SystemExit, KeyboardInterrupt)
"""What a model may raise without the end of the engine: code that a user's class calls may say sys.exit()."""


class ModelOutputError(ValueError):
    """The model returned another number of outputs than it got inputs, or an output that cannot be sent.

    The client gets the message, so it holds nothing of an input.
    """


class OneInputError(Exception):
    """One input of a call is at fault: `cause` is what it raised, and `index` its place in the call."""

    def __init__(self, cause: BaseException, index: int) -> None:
        super().__init__(cause)
        self.cause = cause
        self.index = index


class UnsupportedError(InputRefusedError):
    """The model cannot do what a request asks.

    Logs have the message, so it quotes nothing of the request but numbers and names of a fixed list.
    """


class InputTooLongError(UnsupportedError):
    """An input is longer than the maximum, and must not be cut: `too_long` has both numbers."""

    def __init__(self, tokens: int, max_tokens: int) -> None:
        super().__init__(f"{tokens} tokens, and the maximum is {max_tokens}: shorten it, or allow truncate.")
        self.too_long = TooLong(tokens, max_tokens)


class Token(TypedDict):
    """One token of a text, as Hugging Face's Text Embeddings Inference describes it.

    `start` and `stop` are its byte offsets in the text's UTF-8, prompt included; None for a `special` token, which is
    not in the text.
    """

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class Encoded(Protocol):
    """One tokenized input."""

    @property
    def tokens(self) -> int:
        """Its length, in tokens."""

    @property
    def truncated(self) -> bool:
        """Whether it was cut to the model's maximum length; False if the backend cannot say."""


class Backend(Protocol):
    """A loaded model. `tokenize` and `collate` may run in one thread while `run` runs in another.

    Attributes:
        ops: its operations, of messages.OPS.
        dim: length of a vector; 0 if it returns no vectors.
        device: where it runs: cpu, cuda:0, mps.
        revision: identifies the model and everything that its vectors depend on, in a few characters.
        commit: of the hub, if the model comes from there; otherwise empty.
        dtype: the format of its numbers: float32, bfloat16, float16.
        pooling: how one vector is made of those of tokens: mean, cls; empty if the model does not say.
        max_input_tokens: maximum tokens that it reads of an input; 0 if there is no maximum.
        prompts: names of its prompts, sorted.
        empty_prompts: those of them without a text.
        parts: what one pass of it returns together of a text, of messages.PARTS; empty for most models. If there are
            any, it is a PartsBackend.
        labels: names of the numbers of its vectors, if these are logits of labels.
        activation: what makes scores of such logits: see gpuworker.model_type; otherwise empty.
        max_batch_tokens: the token budget that suits the device when the user sets none.
        packs: whether its batches have no padding, whatever the lengths of their inputs are.
        runners: how many batches run at the same time, each in a separate thread.
        normalizes: whether its vectors have length 1.
        runs_sequentially: whether batches that run at the same time compute one after the other.
        splits_batches: whether a batch may leave inputs for the next one (see policy.adaptive_limits). No if its costs
            have an unknown unit, because a small batch cannot be distinguished from a large one then.
        prepares_ahead: whether a batch is made ready while others run. If the same cores make and run batches, this
            gains nothing, and later inputs lose the choice of that batch.
        collate_runs_user_code: whether `collate` runs code of a user's class, which may fail, hang or end the process
            as `run` may.
        retry_on: the exceptions after which an input runs again.
    """

    ops: frozenset[str]
    dim: int
    device: str
    revision: str
    commit: str
    dtype: str
    pooling: str
    max_input_tokens: int
    prompts: Sequence[str]
    empty_prompts: Sequence[str]
    parts: Sequence[str]
    labels: Sequence[str]
    activation: str
    max_batch_tokens: int
    packs: bool
    runners: int
    normalizes: bool
    runs_sequentially: bool
    splits_batches: bool
    prepares_ahead: bool
    collate_runs_user_code: bool
    retry_on: tuple[type[BaseException], ...]

    def tokenize(self, inputs: Sequence[Input], options: Options = DEFAULT_OPTIONS) -> Sequence[Encoded]:
        """Returns each input as the model reads it, cut to the model's maximum length.

        Raises:
            InputRefusedError: there is no such prompt.
            OneInputError: an input is longer than the maximum and must not be cut, has a token that does not exist, or
                a user's class raised an error.
        """

    def collate(self, inputs: Sequence[Any]) -> Any:  # noqa: ANN401 - only the backend reads it
        """Returns tokenized inputs as one padded batch, ready to run."""

    def run(self, batch: Any, op: str = EMBED, *, exclusive: bool, raw: bool = False) -> Outputs:  # noqa: ANN401
        """Returns the output for each input of a batch, in order.

        For EMBED the outputs are vectors as little-endian float32, together of shape (inputs, dim); for EMBED_ALL the
        vectors of an input's tokens before pooling, of shape (tokens, dim); for PREDICT JSON. An `exclusive` batch may
        use the whole device: no other batch runs or waits. `raw` vectors are those before normalization, of a model
        that `normalizes`.

        Raises:
            InputRefusedError: this model has no vectors of tokens.
        """

    def show_tokens(self, inputs: Sequence[Input], options: Options) -> list[list[Token]]:
        """Returns the tokens of each text, with its prompt, and not cut.

        Raises:
            InputRefusedError: there is no such prompt, an input is no text, or this model has no tokenizer.
        """

    def decode(self, inputs: Sequence[Input], options: Options) -> list[str]:
        """Returns the text that each input's token ids make.

        Raises:
            InputRefusedError: an input holds no ids, or this model has no tokenizer.
            OneInputError: an input has a token that does not exist.
        """

    def busy_s(self) -> float:
        """Returns how long the device has computed since the last call, by its own clock, in s.

        It is 0 if the device has no clock. It may lag behind by a batch.
        """

    def free_memory(self) -> None:
        """Frees the memory that it keeps for later; called when there was none for a batch."""

    def warmup(self) -> None:
        """Runs the model until it has its full speed."""


class TextParts(NamedTuple):
    """What a model returned of one text: a vector, weights as JSON, vectors of tokens; None for the rest."""

    dense: Vector | None = None
    sparse: bytes | None = None
    multi_vector: Vector | None = None


class PartsBackend(Backend, Protocol):
    """A model that returns several parts of a text from one pass: for EMBED_PARTS, and the operations of PART_OPS."""

    def run_parts(
        self,
        batch: Any,  # noqa: ANN401 - only the backend reads it
        wanted: Sequence[frozenset[str]],
        *,
        exclusive: bool,
        raw: bool = False,
    ) -> Sequence[TextParts]:
        """Returns the parts that are wanted of each input of a batch, in order. See `run`."""
