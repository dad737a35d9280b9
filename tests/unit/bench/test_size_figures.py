"""The figures of `redbatch size`, from results of `make bench`."""

from __future__ import annotations

from typing import Any

from bench import size_figures
from redbatch.size.figures import read_measured


def row(of: dict[str, Any], **medians: float) -> dict[str, Any]:
    """Returns a row of a table of results."""
    return {"of": of, "figures": {name.replace("__", "."): {"median": value} for name, value in medians.items()}}


def cost(gateway: float, redis: float) -> dict[str, float]:
    """Returns figures of a request."""
    cpu_us = {"cpu_us__gateway": gateway, "cpu_us__worker": 60, "cpu_us__engine": 45, "cpu_us__redis": redis}
    return cpu_us | {"redis_in_bytes": 2_400, "redis_out_bytes": 2_200}


RUN = {"commit": "c1", "started": "D"}
RESULTS: dict[str, Any] = {
    "machine": {"cpu": "C", "cores": 4},
    "parts": {
        "null": RUN
        | {
            "tables": {
                "null": [
                    row({"gateways": 1, "clients": 1}, **cost(500, 300)),
                    row({"gateways": 1, "clients": 64}, **cost(140, 50)),
                ]
            }
        },
        "cost": RUN
        | {
            "tables": {
                "redis": [
                    row({"model": "null", "appendonly": False, "gateways": 8, "clients": 64}, **cost(220, 60)),
                    row({"model": "null", "appendonly": True, "gateways": 8, "clients": 64}, **cost(220, 72)),
                ]
            }
        },
        "real": RUN
        | {
            "tables": {
                "real": [
                    row({"mix": mix, "clients": clients}, requests_per_s=rate)
                    for mix, clients, rate in (("short", 1, 114), ("short", 64, 570), ("mixed", 64, 231))
                ]
            }
        },
    },
}


def test_the_figures_are_those_of_64_clients() -> None:
    """Of Redis, those with an append-only file; of MiniLM, its speed for both mixes with the cores of the machine."""
    assert size_figures.size_figures(RESULTS) == {
        "source": {
            "commit": "c1",
            "started": "D",
            "machine": "C, 4 cores",
            "command": "make bench",
            "tables": "docs/measurements.md",
        },
        "tokens": 15,
        "dim": 384,
        "cpu_us": {"gateway": 140, "worker": 60, "engine": 45, "redis": 72},
        "redis_in_bytes": 2_400,
        "redis_out_bytes": 2_200,
        "models": {
            "minilm": {
                "cores_per_worker": 4,
                "speeds": [{"tokens": 15, "vectors_per_s": 570}, {"tokens": 39, "vectors_per_s": 231}],
            }
        },
    }


def test_the_command_reads_the_file_that_the_benchmark_writes() -> None:
    """It is in the package."""
    assert size_figures.PATH.is_file()
    assert read_measured().cpu_us.keys() == {"gateway", "worker", "engine", "redis"}
