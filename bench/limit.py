"""The limit: the throughput of the model offline, in one process, without server or queue."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.child_process import run_module
from bench.cluster import clean_environment
from gpuworker.ipc.engine_process import engine_environment

MAX_BATCH_SIZE = 64
POOL_TEXTS = 1_024
"""Size of the pool of texts that requests cycle through: more than are ever in flight, and soon sent several times."""

MAX_SHARE = 1.03
"""Maximum share of the limit: it allows for the drift of the machine's speed between two runs. A larger share is a
measurement error.
"""
TIMEOUT_S = 300.0
SIDE_BY_SIDE = "side-by-side"
"""Argument of bench.offline: also run several batches at once, one on each core."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The times of one offline run.

    Attributes:
        seconds: time for the first `texts` texts of the pool, by method, one batch after the other.
        tuned: the same with the engine's variables for memory and threads, and its layout of weights.
        side_by_side: the same as `tuned`, with several batches at once, each on one core.
        texts: number of texts that were timed.
        tokens: length of each text of the whole pool.
    """

    seconds: Mapping[str, float]
    tuned: Mapping[str, float]
    side_by_side: Mapping[str, float]
    texts: int
    tokens: Sequence[int]

    @property
    def methods(self) -> Mapping[str, float]:
        """The times of all methods."""
        return {**self.seconds, **self.tuned, **self.side_by_side}

    @property
    def best_s(self) -> float:
        """Time of the fastest method with one batch after the other: the limit."""
        return min(self.seconds.values())

    @property
    def tuned_s(self) -> float:
        """The same with the engine's settings, if these are faster."""
        return min(self.best_s, *self.tuned.values())

    @property
    def fastest_s(self) -> float:
        """Time of the fastest of all methods."""
        return min(self.methods.values())

    def share(self, texts_per_s: float, mean_tokens: float, seconds: float) -> float:
        """Returns a served rate as a share of the offline rate (the timed texts in `seconds`).

        Tokens per second are compared, not texts: a window with longer texts is not slower for that reason.
        """
        return texts_per_s * mean_tokens * seconds / sum(self.tokens[: self.texts])


def mean_tokens(tokens: Sequence[int], first: int, last: int) -> float:
    """Returns the mean length of the texts from index `first` up to, not including, `last`; the pool is cyclic."""
    return sum(tokens[i % len(tokens)] for i in range(first, last)) / (last - first)


def is_possible(share: float) -> bool:
    """Returns whether a share is plausible: a served model cannot be faster than the same model offline."""
    return share <= MAX_SHARE


def sorted_batches(lengths: Sequence[int], max_tokens: int, max_size: int = MAX_BATCH_SIZE) -> Iterator[list[int]]:
    """Yields batches of indices, longest first, of at most `max_size` texts and `max_tokens` tokens with padding.

    A text longer than `max_tokens` is a batch by itself.
    """
    order = sorted(range(len(lengths)), key=lambda i: lengths[i], reverse=True)
    while order:
        size = min(max_size, max(1, max_tokens // lengths[order[0]]))
        yield order[:size]
        order = order[size:]


def measure_limit(mix: str, texts: int, model: str = "minilm", settings: Mapping[str, str] | None = None) -> Limit:
    """Measures in two processes: one with the default environment, one with the engine's. Raises ModuleError.

    `settings` of a worker: names without REDBATCH_ and their values.
    """
    environment = clean_environment(settings or {})
    # The library's default: only an engine's backend turns it off.
    plain = _offline((model, mix, str(texts)), {"TOKENIZERS_PARALLELISM": "true"} | environment)
    tuned = _offline((model, mix, str(texts), SIDE_BY_SIDE), engine_environment(environment))
    methods = {f"{name}, tuned": seconds for name, seconds in tuned["seconds"].items()}
    return Limit(**plain | {"tuned": methods, "side_by_side": tuned["side_by_side"]})


def _offline(arguments: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    results: dict[str, Any] = json.loads(run_module("offline", arguments, environment, TIMEOUT_S))
    return results
