"""The result as text and as JSON."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from redbatch.bench.run import GeneratorCost, RunResult
from redbatch.bench.statistics import Summary, WarmupSummary
from redbatch.terminal import make_console
from shared.process.version import __version__

MAX_CORE_SHARE = 0.7
MAX_LAG_MS = 5.0
MIN_WHOLE_MS = 100.0


def generator_warnings(cost: GeneratorCost) -> list[str]:
    """Returns reasons to doubt the figures: they may be those of the load generator and not of the server."""
    texts: list[str] = []
    if cost.core_share > MAX_CORE_SHARE:
        texts.append(
            f"the load generator used {cost.core_share:.0%} of a core: it may have limited the load. "
            "Run several, or a native one such as wrk."
        )
    if cost.delayed_requests:
        texts.append(
            f"{cost.delayed_requests:,} requests waited for one of the {cost.connections:,} connections: "
            "raise --clients if the server should receive them at once"
        )
    if cost.peak_lag_ms > MAX_LAG_MS:
        texts.append(f"the load generator sent up to {cost.peak_lag_ms:.0f} ms too late: its machine was busy")
    return texts


def as_text(result: RunResult) -> Group:
    """Returns the table, with warnings."""
    spec, summary = result.spec, result.summary
    head = Text(f"{spec.target.url}: {_describe_load(result)}", style="bold")
    if summary is None:
        warmup = [Text(f"  {label}: {value}") for label, value in _warmup_rows(result.warmup)]
        return Group(head, Text("  ended before anything was measured"), *warmup)
    table = Table(box=None, pad_edge=False, padding=(0, 2), show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for label, value in _rows(result, summary):
        table.add_row(f"  {label}", Text(value))
    lines = [Text(f"  warning: {text}", style="yellow") for text in generator_warnings(result.cost)]
    return Group(head, table, *lines)


def _describe_load(result: RunResult) -> str:
    settings = result.spec.settings
    if settings.rate is None:
        load = f"closed loop, {settings.max_connections:,} clients"
    else:
        load = f"open loop, {settings.rate:,g} requests/s, {settings.arrivals}"
    texts = "bodies of --body" if settings.body else str(settings.texts) if settings.texts else f"{settings.mix} texts"
    each = f", {settings.inputs_per_request:,} inputs each" if settings.inputs_per_request > 1 else ""
    if result.spec.rerank:
        each = f", queries with {settings.inputs_per_request:,} each"
    seconds = f", {result.summary.window_s:.1f} s" if result.summary else ""
    ended = f", ended by Ctrl-C: {result.unanswered:,} in flight do not count" if result.interrupted else ""
    return f"{load}, {texts}{each}{seconds}{ended}"


def _rows(result: RunResult, summary: Summary) -> list[tuple[str, str]]:
    settings, cost = result.spec.settings, result.cost
    unit = "pairs" if result.spec.rerank else "inputs"
    inputs_per_s = summary.ok_per_s * settings.inputs_per_request
    latency = summary.latency
    p50, p95, p99 = (_format_ms(latency.percentiles_ms[percent]) for percent in (50.0, 95.0, 99.0))
    since = "since due, including time spent waiting here" if settings.rate else "since sent"
    errors = _format_errors(summary.errors)
    total = summary.requests - summary.ok
    due = f", of {summary.requests / summary.window_s:,.1f} requests/s due" if settings.rate else ""
    sent, received = (
        f"{number / 1e6 / summary.window_s:.2f}" for number in (summary.sent_bytes, summary.received_bytes)
    )
    return [
        ("throughput", f"{summary.ok_per_s:,.1f} requests/s, {inputs_per_s:,.1f} {unit}/s{due}"),
        ("latency", f"p50 {p50}   p95 {p95}   p99 {p99}   max {_format_ms(latency.max_ms)}"),
        ("", f"of {summary.ok:,} good answers, {since}"),
        (
            "errors",
            f"{total:,} of {summary.requests:,}"
            + (f" ({_format_ratio(total, summary.requests)}): {errors}" if total else ""),
        ),
        *_error_rows(result),
        *_warmup_rows(result.warmup),
        ("goodput", f"{summary.in_time / summary.window_s:,.1f} good answers in time per second"),
        ("late", f"{summary.late:,} took over {settings.late_after_s * 1000:,.0f} ms ({since.partition(',')[0]})"),
        ("bytes", f"{sent} MB/s sent, {received} MB/s received"),
        ("generator", _format_cost(cost)),
    ]


def _error_rows(result: RunResult) -> list[tuple[str, str]]:
    """Returns the row of the first error: its status, code and message."""
    error = result.first_error
    if error is None:
        return []
    code = "" if error.code == f"http_{error.status}" else f" {error.code}"
    return [("first error", f"{error.status}{code}" + (f": {error.message}" if error.message else ""))]


def _warmup_rows(warmup: WarmupSummary) -> list[tuple[str, str]]:
    """Returns the row of the errors before the measurement, which no other row counts."""
    failed = sum(warmup.errors.values())
    text = f"{failed:,} of {warmup.requests:,} requests failed: {_format_errors(warmup.errors)}"
    return [("warmup", text)] if failed else []


def _format_errors(errors: Mapping[str, int]) -> str:
    return ", ".join(f"{code} {number:,}" for code, number in errors.items())


def _format_cost(cost: GeneratorCost) -> str:
    share, each_us = _format_percent(cost.core_share), _format_number(cost.cpu_us_per_request)
    return f"the load generator used {share} of a core, {each_us} µs of CPU per request"


def _format_ms(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.2f} ms" if value < MIN_WHOLE_MS else f"{value:,.0f} ms"


def _format_number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.0f}"


def _format_percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.0%}"


def _format_ratio(part: int, whole: int) -> str:
    return f"{part / whole:.1%}"


def as_dict(result: RunResult) -> dict[str, Any]:
    """Returns the result as values for JSON: missing values are null, and names contain the units."""
    spec, summary = result.spec, result.summary
    settings = spec.settings
    report: dict[str, Any] = _without_nan(
        {
            "url": spec.target.url,
            "began": result.started_at.isoformat(),
            "interrupted": result.interrupted,
            "unanswered": result.unanswered,
            "loop": "closed" if settings.rate is None else "open",
            "settings": {**settings.model_dump(mode="json"), "check": spec.check, "rerank": spec.rerank},
            "different_requests": len(spec.requests),
            "late_after_ms": settings.late_after_s * 1000,
            "versions": _versions(),
            "warmup": asdict(result.warmup),
            "measured": None if summary is None else _summary_dict(summary, settings.inputs_per_request),
            "first_error": None if result.first_error is None else result.first_error._asdict(),
            "generator": _cost_dict(result.cost),
        }
    )
    return report


def _summary_dict(summary: Summary, inputs: int) -> dict[str, Any]:
    latency = summary.latency
    percentiles = {f"p{percent:g}".replace(".", "_"): value for percent, value in latency.percentiles_ms.items()}
    return {
        "window_s": summary.window_s,
        "requests": summary.requests,
        "ok": summary.ok,
        "in_time": summary.in_time,
        "errors": summary.errors,
        "late": summary.late,
        "answers_in_window": summary.answers,
        "requests_per_s": summary.ok_per_s,
        "inputs_per_s": summary.ok_per_s * inputs,
        "sent_per_s": summary.requests / summary.window_s,
        "sent_bytes": summary.sent_bytes,
        "received_bytes": summary.received_bytes,
        "latency_ms": {"min": latency.min_ms, "mean": latency.mean_ms, **percentiles, "max": latency.max_ms},
        "histogram": [{"up_to_ms": bound_ms, "count": count} for bound_ms, count in summary.histogram],
        "seconds": [asdict(second) for second in summary.seconds],
    }


def _cost_dict(cost: GeneratorCost) -> dict[str, Any]:
    return {
        "cpu_us_per_request": cost.cpu_us_per_request,
        "core_share": cost.core_share,
        "connections": cost.connections,
        "most_in_flight": cost.peak_in_flight,
        "had_to_wait": cost.delayed_requests,
        "most_behind_ms": cost.peak_lag_ms,
        "warnings": generator_warnings(cost),
    }


def _versions() -> dict[str, str]:
    names = ("httptools", "uvloop")
    return {
        "redbatch": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{name: version(name) for name in names},
    }


def _without_nan(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Returns a value with None for NaN, which JSON lacks."""
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def as_json(result: RunResult) -> str:
    """Returns the result as indented JSON."""
    return json.dumps(as_dict(result), indent=2) + "\n"


def print_result(result: RunResult) -> None:
    """Prints the table to stdout."""
    make_console().print(as_text(result), soft_wrap=True)
