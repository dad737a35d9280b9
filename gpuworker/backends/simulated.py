"""The models `null` and `simulated`: vectors that prove which text they are of.

A batch of `null` takes no time, and one of `simulated` the time that a formula gives.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpuworker.backends.base import TEXT_OPS, Token, UnsupportedError
from gpuworker.model_type import scoring_type
from shared.messages import DEFAULT_OPTIONS, EMBED, EMBED_ALL, Input, Options
from shared.model_names import numbered_labels

if TYPE_CHECKING:
    from gpuworker.backends.base import Vector
    from gpuworker.model_spec import Model

REPEATS = 12
DIM = 32 * REPEATS
MAX_BATCH_TOKENS = 16_384
MAX_LOGIT = np.float32(8)


@dataclass(frozen=True, slots=True)
class DigestInput:
    """SHA-256 of an input."""

    digest: bytes
    tokens: int = 1

    @property
    def truncated(self) -> bool:
        """False: this model takes inputs of any length."""
        return False


class SimulatedBackend:
    """A vector is the SHA-256 of the UTF-8 text: its 32 bytes, each divided by 255 as float32, repeated 12 times.

    Of token ids it is the SHA-256 of their bytes. The model has no prompts, and takes inputs of any length. If a
    revision is set, its name is put before each input.

    With labels it is a reranker or classifier. The logits of a text are the first numbers of that vector, scaled to -8
    to 8; those of a pair are of the text `query`, a null character, and the input. An instruction goes before the
    query, with another null character.

    A batch of n inputs sleeps for `base_ms + item_ms * (n - 1)` milliseconds; for `null` both are 0.
    """

    def __init__(self, model: Model) -> None:
        self.ops = TEXT_OPS
        self.dim = DIM
        self.parts: Sequence[str] = ()
        self.labels: Sequence[str] = ()
        self.activation = ""
        if model.num_labels:
            model_type = scoring_type(numbered_labels(model.num_labels), is_multi_label=False)
            self.ops, self.dim = frozenset(model_type.ops), model.num_labels
            self.labels, self.activation = model_type.labels, model_type.activation
        self.device = "cpu"
        self.revision = f"sha256-{model.revision}" if model.revision else "sha256"
        self.commit = ""
        self._salt = model.revision.encode()
        self.dtype = "float32"
        self.pooling = ""
        self.max_input_tokens = 0
        self.prompts: Sequence[str] = ()
        self.empty_prompts: Sequence[str] = ()
        self.max_batch_tokens = MAX_BATCH_TOKENS
        self.packs = True
        self.runners = 1
        self.normalizes = self.runs_sequentially = False
        self._base_s = model.base_ms / 1000
        self._item_s = model.item_ms / 1000
        # A sleep leaves the cores free, as a GPU does. Without a sleep there is no device to wait for.
        self.splits_batches = True
        self.prepares_ahead = self._base_s + self._item_s > 0
        self.collate_runs_user_code = False
        self.retry_on: tuple[type[BaseException], ...] = ()

    def tokenize(self, inputs: Sequence[Input], options: Options = DEFAULT_OPTIONS) -> list[DigestInput]:
        """Hashes each input, which counts as one token. Raises InputRefusedError: the options name a prompt."""
        if options.prompt_name:
            raise UnsupportedError("prompt_name: this model has no prompts.")
        if options.instruction is not None and options.query is None:
            raise UnsupportedError("instruction: this model has no prompts.")
        contents = (each if isinstance(each, bytes) else each.encode() for each in inputs)
        before = [each.encode() + b"\0" for each in (options.instruction, options.query) if each is not None]
        salt = b"".join((self._salt, *before))
        return [DigestInput(hashlib.sha256(salt + content).digest()) for content in contents]

    def collate(self, inputs: Sequence[DigestInput]) -> bytes:
        """Joins the digests, each repeated to the length of a vector."""
        return b"".join([each.digest * REPEATS for each in inputs])

    def run(self, batch: bytes, op: str = EMBED, *, exclusive: bool, raw: bool = False) -> Vector:  # noqa: ARG002 - all batches run alike
        """Returns the vectors after the simulated time. For EMBED_ALL each input is one token, which has one vector."""
        n = len(batch) // DIM
        if self._base_s or self._item_s:
            time.sleep(self._base_s + self._item_s * (n - 1))
        vectors = (np.frombuffer(batch, dtype=np.uint8).astype(np.float32) / np.float32(255)).reshape(n, DIM)
        if self.labels:
            return np.ascontiguousarray(vectors[:, : self.dim] * MAX_LOGIT * 2 - MAX_LOGIT)
        return vectors[:, None] if op == EMBED_ALL else vectors

    def show_tokens(self, inputs: Sequence[Input], options: Options) -> list[list[Token]]:  # noqa: ARG002 - refused
        """Raises InputRefusedError."""
        raise UnsupportedError("This model has no tokenizer.")

    def decode(self, inputs: Sequence[Input], options: Options) -> list[str]:  # noqa: ARG002 - refused
        """Raises InputRefusedError."""
        raise UnsupportedError("This model has no tokenizer.")

    def busy_s(self) -> float:
        """Returns 0: there is no device clock."""
        return 0.0

    def free_memory(self) -> None:
        """Does nothing: the model keeps no memory."""

    def warmup(self) -> None:
        """Does nothing: a formula has no cold start."""
