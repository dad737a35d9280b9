"""Load from `redbatch bench`: for loads that wrk cannot send, and to compare its own cost with that of wrk.

wrk sends no open loop, no request at a given time, and checks no answer.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.cluster import clean_environment
from bench.figures import Row
from bench.measurement import Measurement
from bench.step import ERRORS
from bench.wrk import GeneratorError

TABLE = "generators"
WARMUP_S = 1.0


def run(url: str, *load: str, may_fail: bool = False) -> dict[str, Any]:
    """Sends a load to a server, in a separate process, and returns the JSON that `--out` writes.

    Raises:
        GeneratorError: the command failed; with `may_fail`, it failed and wrote no results. Its exit status is 1 when
            no request got a good answer, which an overload may do to a server.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "redbatch-bench.json"
        command = [sys.executable, "-P", "-m", "redbatch", "bench", url, *load, "--out", str(out)]
        process = subprocess.run(command, env=clean_environment({}), check=False, capture_output=True, text=True)
        if process.returncode != 0 and not (may_fail and out.exists()):
            raise GeneratorError(f"redbatch bench failed: {process.stderr.strip()}")
        results: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return results


def compare_with_wrk(url: str, wrk: Measurement, seconds: float) -> list[Row]:
    """Returns the figures of both generators for one server with 64 clients. Those of wrk were measured just before."""
    load = ("--clients", "64", "--mix", "short", "--duration", f"{seconds}s", "--warmup", f"{WARMUP_S}s")
    results = run(url, *load)
    measured, own = results["measured"], results["generator"]
    wrk_figures = {
        "requests_per_s": wrk.requests_per_s,
        "p50_ms": wrk.load.p50_ms,
        "cpu_us": wrk.cost.cpu_us["generator"],
    }
    own_figures = {
        "requests_per_s": measured["requests_per_s"],
        "p50_ms": measured["latency_ms"]["p50"],
        "cpu_us": own["cpu_us_per_request"],
        ERRORS: float(sum(measured["errors"].values())),
    }
    return [
        Row(TABLE, {"generator": "wrk"}, wrk_figures),
        Row(TABLE, {"generator": "redbatch bench"}, own_figures),
    ]
