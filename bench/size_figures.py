"""The figures of `redbatch size`, from results of `make bench`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench import results
from bench.machine import ROOT
from bench.tables import ROLES, Rows, median
from redbatch.bench.texts import MIXED_MEAN_TOKENS, SHORT_WORDS, SPECIAL_TOKENS
from shared.model_names import DEFAULT_MODEL

PATH = ROOT / "redbatch" / "size" / "measured.json"
CLIENTS = 64
TOKENS = {"short": sum(SHORT_WORDS) / len(SHORT_WORDS) + SPECIAL_TOKENS, "mixed": MIXED_MEAN_TOKENS}
DIM = 384
REQUEST = {"gateways": 1, "clients": CLIENTS}
REDIS = {"model": "null", "appendonly": True, "gateways": 8, "clients": CLIENTS}
"""An append-only file and several gateways, as in a deployment."""


def size_figures(measured: results.Results) -> dict[str, Any]:
    """Returns the figures as JSON values: medians of a request of one short text, 64 clients, and MiniLM's speed."""
    machine, parts = measured["machine"], measured["parts"]
    tables: Mapping[str, Rows] = {name: rows for part in parts.values() for name, rows in part["tables"].items()}
    request, redis = _find(tables["null"], REQUEST), _find(tables["redis"], REDIS)
    cpu_us = {role: median(request, f"cpu_us.{role}") for role in ROLES}
    return {
        "source": {
            "commit": parts["null"]["commit"],
            "started": parts["null"]["started"],
            "machine": f"{machine['cpu']}, {machine['cores']} cores",
            "command": "make bench",
            "tables": "docs/measurements.md",
        },
        "tokens": TOKENS["short"],
        "dim": DIM,
        "cpu_us": cpu_us | {"redis": median(redis, "cpu_us.redis")},
        "redis_in_bytes": median(request, "redis_in_bytes"),
        "redis_out_bytes": median(request, "redis_out_bytes"),
        "models": {DEFAULT_MODEL: {"cores_per_worker": machine["cores"], "speeds": _speeds(tables["real"])}},
    }


def _find(rows: Rows, of: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(row for row in rows if row["of"] == of)


def _speeds(rows: Rows) -> Sequence[dict[str, float]]:
    found = {mix: _find(rows, {"mix": mix, "clients": CLIENTS}) for mix in TOKENS}
    return [{"tokens": TOKENS[mix], "vectors_per_s": median(row, "requests_per_s")} for mix, row in found.items()]
