"""Puts a closed loop on the cluster, as `redbatch bench` does, and returns what came of it."""

from __future__ import annotations

from redbatch.bench.report import generator_warnings
from redbatch.bench.run import ProgressDisplay, RunSpec, run
from redbatch.bench.settings import BenchSettings
from redbatch.bench.target import encode_requests, parse_target
from redbatch.bench.texts import request_texts
from redbatch.tune.measurement import Measurement
from redbatch.tune.settings import TuneSettings

TIMEOUT_MS = 10_000
TIMEOUT_BUDGETS = 4
MAX_TIMEOUT_MS = 300_000
MIN_ANSWERS = 100
"""Of fewer, the p95 is the luck of a handful."""


class LoadRunner:
    """The loads of one search: the same requests, encoded once, for each.

    Args:
        url: of the cluster.
        settings: of the search.
        watcher: who is shown how far a load is.

    Raises:
        BadTexts: the file of texts cannot be read.
    """

    def __init__(self, url: str, settings: TuneSettings, watcher: ProgressDisplay) -> None:
        self._settings = settings
        self._watcher = watcher
        self._target = parse_target(url)
        texts = request_texts(settings.texts, settings.mix, settings.seed, settings.inputs_per_request)
        self._timeout_ms = min(MAX_TIMEOUT_MS, round(max(TIMEOUT_MS, TIMEOUT_BUDGETS * settings.p95_ms)))
        self._requests = encode_requests(self._target, [("X-Timeout-Ms", str(self._timeout_ms))], texts)
        self.doubts: set[str] = set()

    def point(self, clients: int) -> Measurement:
        """Returns what so many clients found; what makes it doubtful is added to `doubts`.

        Raises:
            KeyboardInterrupt: the user ended it.
            CannotConnect: the gateway is gone.
        """
        settings = BenchSettings(
            clients=clients,
            rate=None,
            requests=None,
            duration=f"{self._settings.duration_s:.3f}s",
            warmup=f"{self._settings.warmup_s:.3f}s",
            inputs_per_request=self._settings.inputs_per_request,
            timeout_ms=self._timeout_ms,
        )
        result = run(RunSpec(settings, self._target, self._requests, check=False), self._watcher)
        summary = result.summary
        if result.interrupted or summary is None:
            raise KeyboardInterrupt
        self.doubts.update(generator_warnings(result.cost))
        percentiles = summary.latency.percentiles_ms
        return Measurement(
            clients=clients,
            per_s=summary.ok_per_s,
            p50_ms=percentiles[50.0],
            p95_ms=percentiles[95.0],
            p99_ms=percentiles[99.0],
            answers=summary.ok,
            errors=sum(summary.errors.values()),
        )
