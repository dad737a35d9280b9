"""The two loads on a cluster of real processes: 500 requests at once, and bursts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.step import ERRORS
from redbatch.bench.request_log import RequestLog
from redbatch.bench.run import RunResult, RunSpec, run
from redbatch.bench.settings import BenchSettings
from redbatch.bench.target import encode_requests, parse_target
from redbatch.bench.texts import built_in_texts

AT_ONCE = "at once"
BURSTS = "bursts"
REQUESTS = 500
RATE = 60.0
"""Mean requests per second. The rate in a burst is four times that: above the ceiling of single inputs (200/s), below
that of full batches of 2 (250/s)."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of a measurement: rounds, requests at once, and bursts (of half a second, every two seconds)."""

    rounds: int = 3
    requests: int = REQUESTS
    bursts: int = 2

    @property
    def cell_s(self) -> float:
        """Approximate duration of one setting in a round."""
        return 0.9 + self.requests / 300 + self._bursts_s + 0.3

    @property
    def _bursts_s(self) -> float:
        return 2.0 * (self.bursts - 1) + 0.5

    def loads(self, number: int) -> dict[str, BenchSettings]:
        """Returns the loads of a round: the same for each setting, with other arrivals in each round."""
        return {
            AT_ONCE: BenchSettings(
                clients=self.requests, rate=None, requests=self.requests, duration=None, warmup="0s"
            ),
            BURSTS: BenchSettings(
                clients=None,
                rate=RATE,
                arrivals="bursty",
                requests=None,
                duration=f"{self._bursts_s:g}s",
                warmup="0s",
                seed=number + 1,
            ),
        }


QUICK = Extent(rounds=1, requests=200, bursts=1)


class Loads:
    """Sends loads to one cluster.

    Args:
        url: URL of the cluster.
    """

    def __init__(self, url: str) -> None:
        self._target = parse_target(url)
        self._requests: Sequence[bytes] = encode_requests(self._target, [], built_in_texts("short", 1, 1))

    def run(self, load: BenchSettings) -> dict[str, float]:
        """Sends a load to the cluster and returns its figures.

        Raises:
            KeyboardInterrupt: the load was interrupted.
            CannotConnect: the gateway does not respond.
        """
        return figures(run(RunSpec(load, self._target, self._requests, check=False), _NoProgress()))


def figures(result: RunResult) -> dict[str, float]:
    """Returns the figures of a load. Raises KeyboardInterrupt: the load was interrupted."""
    summary = result.summary
    if result.interrupted or summary is None:
        raise KeyboardInterrupt
    percentiles = summary.latency.percentiles_ms
    return {
        "requests_per_s": summary.ok_per_s,
        "p50_ms": percentiles[50.0],
        "p95_ms": percentiles[95.0],
        "p99_ms": percentiles[99.0],
        "max_ms": summary.latency.max_ms,
        ERRORS: float(sum(summary.errors.values())),
    }


class _NoProgress:
    """Shows no progress of a load: the progress bar is that of the whole sweep."""

    def show(self, elapsed_s: float, log: RequestLog) -> None:
        """Does nothing."""
