"""Load from `redbatch bench`: for what wrk cannot send, and to see what it costs beside wrk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.cluster import Cluster, clean_environment
from bench.figures import Row
from bench.generator import GeneratorError
from bench.measure import Measured
from bench.stage import ERRORS

TABLE = "generators"
WARMUP_S = 1.0


def put(running: Cluster, folder: Path, *load: str) -> dict[str, Any]:
    """Puts a load on a cluster and returns what `--out` has of it. Raises GeneratorError."""
    out = folder / "redbatch-bench.json"
    command = [sys.executable, "-P", "-m", "redbatch", "bench", running.url, *load, "--out", str(out)]
    process = subprocess.run(command, env=clean_environment({}), check=False, capture_output=True, text=True)
    if process.returncode != 0:
        raise GeneratorError(f"redbatch bench failed: {process.stderr.strip()}")
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


def beside_wrk(running: Cluster, folder: Path, wrk: Measured, seconds: float) -> list[Row]:
    """Returns what both generators say of one server: wrk, which has just measured it with 64 clients, and ours."""
    load = ("--clients", "64", "--mix", "short", "--duration", f"{seconds}s", "--warmup", f"{WARMUP_S}s")
    found = put(running, folder, *load)
    measured, own = found["measured"], found["generator"]
    theirs = {"requests_per_s": wrk.requests_per_s, "p50_ms": wrk.load.p50_ms, "cpu_us": wrk.cost.cpu_us["generator"]}
    ours = {
        "requests_per_s": measured["requests_per_s"],
        "p50_ms": measured["latency_ms"]["p50"],
        "cpu_us": own["cpu_us_per_request"],
        ERRORS: float(sum(measured["errors"].values())),
    }
    return [
        Row(TABLE, {"generator": "wrk"}, theirs),
        Row(TABLE, {"generator": "redbatch bench"}, ours),
    ]
