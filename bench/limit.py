"""The limit: what the model gives offline, in one process, with nothing around it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.child import output_of
from bench.cluster import clean_environment
from gpuworker.ipc.engine_process import engine_environment

MAX_BATCH_SIZE = 64
POOL_TEXTS = 1_024
"""So many of a pool are sent in turn: more than are ever in flight, and soon sent several times."""

ABOVE = 1.03
"""A serving figure above the limit by more than what the machine's speed may drift between two runs is no figure."""
PATIENCE_S = 300.0
SIDE_BY_SIDE = "side-by-side"
"""Has bench.offline run batches on all cores at once too."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What one run found.

    Attributes:
        seconds: time for the first `texts` texts of the pool, by how they were run, one batch after the other.
        tuned: the same with the variables for memory and threads, and the layout of weights, that the engine has.
        side_by_side: with these, and several batches at once, each on a core of its own.
        texts: how many these are.
        tokens: of each text of the pool, which is longer.
    """

    seconds: Mapping[str, float]
    tuned: Mapping[str, float]
    side_by_side: Mapping[str, float]
    texts: int
    tokens: Sequence[int]

    @property
    def ways(self) -> Mapping[str, float]:
        """All ways together."""
        return {**self.seconds, **self.tuned, **self.side_by_side}

    @property
    def best_s(self) -> float:
        """Time in the best way to run one batch after the other: the limit."""
        return min(self.seconds.values())

    @property
    def tuned_s(self) -> float:
        """The same with what the engine sets for itself, if that is faster."""
        return min(self.best_s, *self.tuned.values())

    @property
    def least_s(self) -> float:
        """Time in the best way of all."""
        return min(self.ways.values())

    def share(self, texts_per_s: float, mean_tokens: float, seconds: float) -> float:
        """Returns how much it is to answer so many texts of that mean length, beside all of these in so many seconds.

        Tokens are compared, not texts: a run that met the longer ones of the texts was no slower for that.
        """
        return texts_per_s * mean_tokens * seconds / sum(self.tokens[: self.texts])


def mean_tokens(tokens: Sequence[int], first: int, last: int) -> float:
    """Returns the mean length of the texts from `first` until before `last`, where they begin anew at their end."""
    return sum(tokens[i % len(tokens)] for i in range(first, last)) / (last - first)


def is_possible(share: float) -> bool:
    """Whether serving can have been that fast: a model served cannot beat the model alone."""
    return share <= ABOVE


def sorted_batches(lengths: Sequence[int], max_tokens: int, max_size: int = MAX_BATCH_SIZE) -> Iterator[list[int]]:
    """Yields batches of indices, longest first, of at most so many texts, and so many tokens with padding."""
    order = sorted(range(len(lengths)), key=lambda i: lengths[i], reverse=True)
    while order:
        size = min(max_size, max(1, max_tokens // lengths[order[0]]))
        yield order[:size]
        order = order[size:]


def measure_limit(mix: str, texts: int, model: str = "minilm", settings: Mapping[str, str] | None = None) -> Limit:
    """Measures in two processes, one as any program is and one as the engine is. Raises LimitError.

    `settings` are a worker's: names without REDBATCH_ and their values.
    """
    environment = clean_environment(settings or {})
    plain = _offline((model, mix, str(texts)), environment)
    tuned = _offline((model, mix, str(texts), SIDE_BY_SIDE), engine_environment(environment))
    ways = {f"{how}, tuned": seconds for how, seconds in tuned["seconds"].items()}
    return Limit(**plain | {"tuned": ways, "side_by_side": tuned["side_by_side"]})


def _offline(arguments: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output_of("offline", arguments, environment, PATIENCE_S))
    return found
