"""What the pipeline carries: entries, their inputs, and the batches these go into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpuworker.batching import Waiting

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(slots=True)
class Work:
    """An entry in the engine: its texts, and how far they have come."""

    key: str
    texts: Sequence[str]
    since: float
    deadline: float
    alone: bool
    rows: list[NDArray[np.float32] | None] = field(default_factory=list)
    left: int = 0
    began: float | None = None
    seconds: float = 0.0
    size: int = 0
    over: bool = False

    def __post_init__(self) -> None:
        self.rows = [None] * len(self.texts)
        self.left = len(self.texts)


@dataclass(frozen=True, slots=True)
class Item:
    """One input that waits, tokenized."""

    work: Work
    index: int
    encoded: Any
    waiting: Waiting


@dataclass(frozen=True, slots=True)
class Batch:
    """Inputs that run at once, collated; or the error that collating them raised."""

    items: tuple[Item, ...]
    collated: Any
    error: Exception | None = None

    @property
    def tokens(self) -> int:
        """Tokens without padding."""
        return sum(item.waiting.tokens for item in self.items)

    @property
    def padded(self) -> int:
        """Tokens with padding."""
        return max(item.waiting.tokens for item in self.items) * len(self.items)


@dataclass(frozen=True, slots=True)
class Failed:
    """An entry that gets an error instead of vectors."""

    key: str
    code: str
    message: str


@dataclass(slots=True)
class Ran:
    """What came out of a batch: entries that are complete by it, entries that failed in it, and its measures."""

    size: int = 0
    tokens: int = 0
    padded: int = 0
    seconds: float = 0.0
    gap: float = 0.0
    done: list[Work] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
