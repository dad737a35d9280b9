"""What an engine asks of a backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict

from gpuworker.functions import InputRefusedError
from shared.messages import DECODE, DEFAULT_OPTIONS, EMBED, EMBED_ALL, TOKENIZE, Input, Options

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector: TypeAlias = NDArray[np.float32]
    Output: TypeAlias = Vector | bytes
    Outputs: TypeAlias = Vector | Sequence[Vector] | Sequence[bytes]
    """Of an input, and of a batch: an array may be a vector, several, or one for each input."""

__all__ = ["Backend", "Encoded", "InputRefusedError", "Token"]

OF_TEXTS = frozenset((EMBED, EMBED_ALL, TOKENIZE, DECODE))
"""What models of texts can be asked for."""


class Token(TypedDict):
    """One token of a text, as Hugging Face's Text Embeddings Inference describes it.

    `start` and `stop` are where it is in the text's UTF-8, prompt included; None for a `special` token, which is not in
    it.
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


class Backend(Protocol):
    """A loaded model. `tokenize` and `collate` may run in one thread while `run` runs in another.

    Attributes:
        ops: what can be asked of it, of messages.OPS.
        dim: length of a vector; 0 where it gives none.
        device: where it runs: cpu, cuda:0, mps.
        revision: names the model and all that its vectors depend on, in a few characters.
        commit: of the hub, where it comes from there; empty for others.
        dtype: the format of its numbers: float32, bfloat16, float16.
        pooling: how one vector is made of those of tokens: mean, cls; empty where it does not say.
        max_input_tokens: so many of an input it reads; 0 where there is no bound.
        max_batch_tokens: the token budget that suits the device when the user sets none.
        packs: whether its batches hold no padding, whatever the lengths of their inputs.
        runners: how many batches run at the same time, each in a thread of its own.
        normalizes: whether its vectors have length 1.
        in_turn: whether batches that run at the same time compute one after the other.
        ahead: whether a batch is made ready while others run. Where the cores that would make it are those that run,
            nothing is won, and what arrives later loses its choice.
    """

    ops: frozenset[str]
    dim: int
    device: str
    revision: str
    commit: str
    dtype: str
    pooling: str
    max_input_tokens: int
    max_batch_tokens: int
    packs: bool
    runners: int
    normalizes: bool
    runs_sequentially: bool
    prepares_ahead: bool

    def tokenize(self, inputs: Sequence[Input], options: Options = DEFAULT_OPTIONS) -> Sequence[Encoded]:
        """Returns each input as the model reads it, cut to the length that the model takes.

        Raises:
            InputRefusedError: there is no such prompt or token, or an input is longer than the model takes and not to
                be cut.
        """

    def collate(self, inputs: Sequence[Any]) -> Any:  # noqa: ANN401 - what a backend makes, it alone reads
        """Returns tokenized inputs as one padded batch, ready to run."""

    def run(self, batch: Any, op: str = EMBED, *, exclusive: bool, raw: bool = False) -> Outputs:  # noqa: ANN401
        """Returns what comes of each input of a batch, in order.

        For EMBED vectors as little-endian float32, together of shape (inputs, dim); for EMBED_ALL those of an input's
        tokens before pooling, of shape (tokens, dim); for PREDICT JSON. A batch that is `alone` may use the whole
        device: nothing else runs or waits. `raw` vectors are from before a model that `normalizes` them does so.

        Raises:
            InputRefusedError: this model has no vectors of tokens.
        """

    def show_tokens(self, inputs: Sequence[Input], options: Options) -> list[list[Token]]:
        """Returns the tokens of each text, with its prompt and uncut.

        Raises:
            InputRefusedError: there is no such prompt, this is no text, or this model has no tokenizer.
        """

    def decode(self, inputs: Sequence[Input], options: Options) -> list[str]:
        """Returns the text that each input's token ids make.

        Raises:
            InputRefusedError: there is no such token, these are no ids, or this model has no tokenizer.
        """

    def busy_s(self) -> float:
        """Returns how long the device has computed since this was last asked, by its own clock, in s.

        It is 0 where the device has no clock. It may lag behind by a batch.
        """

    def free_memory(self) -> None:
        """Gives back what memory it keeps for later: there was none for a batch."""

    def warmup(self) -> None:
        """Runs the model as often as it takes to be at full speed."""
