"""Puts a closed loop on the cluster, like `redbatch bench`, and returns the measurement."""

from __future__ import annotations

from redbatch.bench.progress import ProgressDisplay
from redbatch.bench.report import generator_warnings
from redbatch.bench.run import RunSpec, run
from redbatch.bench.settings import BenchSettings
from redbatch.bench.target import encode_requests, parse_target
from redbatch.bench.texts import request_texts
from redbatch.tune.measurement import Measurement
from redbatch.tune.settings import TuneSettings

TIMEOUT_MS = 10_000
TIMEOUT_BUDGETS = 4
MAX_TIMEOUT_MS = 300_000
MIN_ANSWERS = 100
"""With fewer answers, the p95 depends on a few of them and is mostly chance."""


class LoadRunner:
    """Runs the loads of one search: all send the same requests, which are encoded once.

    Args:
        url: URL of the cluster.
        settings: settings of the search.
        progress: receives the progress of each load.

    Raises:
        InvalidTextsError: the file of texts cannot be read.
    """

    def __init__(self, url: str, settings: TuneSettings, progress: ProgressDisplay) -> None:
        self._settings = settings
        self._progress = progress
        self._target = parse_target(url)
        texts = request_texts(settings.texts, settings.mix, settings.seed, settings.inputs_per_request)
        self._timeout_ms = min(MAX_TIMEOUT_MS, round(max(TIMEOUT_MS, TIMEOUT_BUDGETS * settings.p95_ms)))
        self._requests = encode_requests(self._target, [("X-Timeout-Ms", str(self._timeout_ms))], texts)
        self.warnings: set[str] = set()

    def measure(self, clients: int) -> Measurement:
        """Runs a load with this many clients and returns its measurement; adds reasons to doubt it to `warnings`.

        Raises:
            KeyboardInterrupt: the user interrupted the load.
            CannotConnectError: the gateway cannot be reached.
            RefusedError: the gateway refuses each request.
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
        result = run(RunSpec(settings, self._target, self._requests, check=False), self._progress)
        summary = result.summary
        if result.interrupted or summary is None:
            raise KeyboardInterrupt
        self.warnings.update(generator_warnings(result.cost))
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
