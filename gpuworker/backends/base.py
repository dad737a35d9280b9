"""What an engine asks of a backend, and the choice of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from shared.messages import PLAIN, Input, Options

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpuworker.engine_options import EngineOptions
    from gpuworker.models import Model


class InputRefused(Exception):
    """An input, or what is asked of it, is not for this model. The message is for the client: it holds no text."""


class Encoded(Protocol):
    """One tokenized input."""

    @property
    def tokens(self) -> int:
        """Its length, in tokens."""


class Backend(Protocol):
    """A loaded model. `tokenize` and `collate` may run in one thread while `run` runs in another.

    Attributes:
        dim: length of a vector.
        device: where it runs: cpu, cuda:0, mps.
        max_batch_tokens: the token budget that suits the device when the user sets none.
        packs: whether its batches hold no padding, whatever the lengths of their inputs.
        runners: how many batches run at the same time, each in a thread of its own.
        normalizes: whether its vectors have length 1.
        ahead: whether a batch is made ready while others run. Where the cores that would make it are those that run,
            nothing is won, and what arrives later loses its choice.
    """

    dim: int
    device: str
    max_batch_tokens: int
    packs: bool
    runners: int
    normalizes: bool
    ahead: bool

    def tokenize(self, inputs: Sequence[Input], options: Options = PLAIN) -> Sequence[Encoded]:
        """Returns each input as the model reads it, cut to the length that the model takes.

        Raises:
            InputRefused: there is no such prompt or token, or an input is longer than the model takes and not to be
                cut.
        """

    def collate(self, inputs: Sequence[Any]) -> Any:  # noqa: ANN401 - what a backend makes, it alone reads
        """Returns tokenized inputs as one padded batch, ready to run."""

    def run(self, batch: Any, *, alone: bool, raw: bool = False) -> NDArray[np.float32]:  # noqa: ANN401
        """Returns a vector for each input of a batch, as little-endian float32 of shape (inputs, dim), in order.

        One that is `alone` may use the whole device: nothing else runs or waits. `raw` vectors are from before a model
        that `normalizes` them does so.
        """

    def free_memory(self) -> None:
        """Gives back what memory it keeps for later: there was none for a batch."""

    def warmup(self) -> None:
        """Runs the model as often as it takes to be at full speed."""


def load_backend(model: Model, options: EngineOptions) -> Backend:
    """Loads the model.

    Raises:
        ModelError: it cannot be loaded.
    """
    if model.kind == "sentence":
        from gpuworker.backends.sentence import SentenceBackend  # noqa: PLC0415 - imports torch, for seconds

        return SentenceBackend(model, options)
    from gpuworker.backends.hashing import HashingBackend  # noqa: PLC0415 - imports numpy

    return HashingBackend(model)
