"""The tables of the documents, from results as JSON values. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]
Table = Callable[[Mapping[str, Rows]], str]

NONE = "–"
LARGE = 100
MIDDLE = 10
ROLES = ("gateway", "worker", "engine", "redis")
MANY = 1_000


def number(value: float) -> str:
    """Returns a number with 0 to 2 decimals: fewer for larger ones."""
    size = abs(value)
    decimals = 0 if size >= LARGE else 1 if size >= MIDDLE else 2
    return f"{value:,.{decimals}f}"


def percent(value: float) -> str:
    """Returns a share as a percentage."""
    return f"{value:.1%}"


def ratio(value: float) -> str:
    """Returns a share as a ratio."""
    return f"{value:.2f}"


def median(row: Mapping[str, Any], name: str) -> float:
    """Returns the median of a figure. Raises KeyError if the row does not have it."""
    return float(row["figures"][name]["median"])


def format_median(row: Mapping[str, Any], name: str, form: Callable[[float], str] = number) -> str:
    """Returns the median of a figure, or a dash if the row does not have it."""
    figure = row["figures"].get(name)
    return NONE if figure is None else form(figure["median"])


def format_spread(row: Mapping[str, Any], name: str, form: Callable[[float], str] = number) -> str:
    """Returns the median of a figure, with its smallest and largest run if it has several."""
    figure = row["figures"].get(name)
    if figure is None or len(figure["runs"]) == 1:
        return format_median(row, name, form)
    return f"{form(figure['median'])} ({form(figure['min'])} to {form(figure['max'])})"


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Returns a Markdown table; its first `left` columns are aligned left, the others right."""
    rule = ["---" if i < left else "---:" for i in range(len(heads))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows))


def null_model(tables: Mapping[str, Rows]) -> str:
    """Rate and latency with the null model."""
    heads = ("clients", "gateways", "requests/s", "p50 ms", "p95 ms", "p99 ms")
    rows = [
        [
            f"{row['of']['clients']:,}",
            str(row["of"]["gateways"]),
            format_spread(row, "requests_per_s"),
            format_spread(row, "p50_ms"),
            *(format_median(row, name) for name in ("p95_ms", "p99_ms")),
        ]
        for row in tables["null"]
    ]
    return markdown(heads, rows, left=0)


def null_inputs(tables: Mapping[str, Rows]) -> str:
    """Inputs per second with the null model, by the inputs of a request."""
    heads = ("inputs per request", "inputs/s", "× one", "requests/s", "p50 ms", "p99 ms", "CPU µs per input")
    rows = [
        [
            str(row["of"]["inputs"]),
            format_spread(row, "inputs_per_s"),
            format_spread(row, "ratio", ratio),
            *(format_median(row, name) for name in ("requests_per_s", "p50_ms", "p99_ms")),
            number(sum(median(row, f"cpu_us.{role}") for role in ROLES) / row["of"]["inputs"]),
        ]
        for row in tables["null-inputs"]
    ]
    return markdown(heads, rows, left=0)


def null_model_cost(tables: Mapping[str, Rows]) -> str:
    """CPU and Redis per request with the null model; also with 5,000 clients, if these were measured."""
    measured = [*tables["null"], *(row for row in tables.get("redis", ()) if is_plain_many(row["of"]))]
    rows = [[f"{row['of']['clients']:,}", str(row["of"]["gateways"]), *_cost(row)] for row in measured]
    heads = ("clients", "gateways", *ROLES, "sum", "wrk", "scripts", "commands", "bytes in", "bytes out")
    return markdown(heads, rows, left=0)


def is_plain_many(of: Mapping[str, Any]) -> bool:
    """Returns whether a row of Redis' cost is from the simplest cluster with thousands of clients."""
    return of["model"] == "null" and not of["appendonly"] and of["gateways"] == 1 and of["clients"] > MANY


def _cost(row: Mapping[str, Any]) -> list[str]:
    total = sum(median(row, f"cpu_us.{role}") for role in ROLES)
    names = ("redis_scripts", "redis_commands", "redis_in_bytes", "redis_out_bytes")
    cells = [format_median(row, f"cpu_us.{role}") for role in ROLES]
    return [
        *cells,
        number(total),
        format_median(row, "cpu_us.generator"),
        *(format_median(row, name) for name in names),
    ]


SHARES = ("× the limit", "× tuned", "× side by side")


def real_model(tables: Mapping[str, Rows]) -> str:
    """Rate, its share of the offline rates, and latency with MiniLM."""
    heads = ("texts", "clients", "texts/s", *SHARES, "p50 ms", "p95 ms", "p99 ms", "padding", "batch")
    rows = [
        [
            row["of"]["mix"],
            str(row["of"]["clients"]),
            format_spread(row, "requests_per_s"),
            format_spread(row, "share_of_limit", ratio),
            format_median(row, "share_of_tuned", ratio),
            format_median(row, "share_of_side_by_side", ratio),
            format_spread(row, "p50_ms"),
            *(format_median(row, name) for name in ("p95_ms", "p99_ms")),
            format_median(row, "padding", percent),
            format_median(row, "batch_inputs"),
        ]
        for row in tables["real"]
    ]
    return markdown(heads, rows)


def real_model_cost(tables: Mapping[str, Rows]) -> str:
    """CPU per request with MiniLM."""
    heads = ("texts", "clients", *ROLES, "sum", "wrk", "scripts", "commands", "bytes in", "bytes out")
    rows = [[row["of"]["mix"], str(row["of"]["clients"]), *_cost(row)] for row in tables["real"]]
    return markdown(heads, rows)


def limit(tables: Mapping[str, Rows]) -> str:
    """Texts per second offline, by method."""
    mixes = list(dict.fromkeys(row["of"]["mix"] for row in tables["limit"]))
    cells = {(row["of"]["how"], row["of"]["mix"]): format_spread(row, "texts_per_s") for row in tables["limit"]}
    hows = list(dict.fromkeys(how for how, _ in cells))
    rows = [[how, *(cells.get((how, mix), NONE) for mix in mixes)] for how in hows]
    best = [format_spread(row, "texts_per_s") for row in tables["best"]]
    tuned = [format_spread(row, "tuned_texts_per_s") for row in tables["best"]]
    side_by_side = [format_spread(row, "side_by_side_texts_per_s") for row in tables["best"]]
    heads = ("method", *(f"{mix}, texts/s" for mix in mixes))
    best_rows = [
        ["**the limit**: the best of each round, one batch at a time", *best],
        ["the best with one batch at a time, tuned or not", *tuned],
        ["the best of all, *side by side*", *side_by_side],
    ]
    return markdown(heads, [*rows, *best_rows])


def gaps(tables: Mapping[str, Rows]) -> str:
    """Idle time of a runner between two batches while inputs were waiting."""
    heads = ("texts", "clients", "a batch, ms", "gap, mean ms", "p50 ms", "p95 ms", "p99 ms", "share of the time")
    names = ("batch_ms", "gap_ms", "gap_p50_ms", "gap_p95_ms", "gap_p99_ms")
    rows = [
        [
            row["of"]["mix"],
            str(row["of"]["clients"]),
            *(format_median(row, name) for name in names),
            format_median(row, "gap_share", percent),
        ]
        for row in tables["real"]
        if row["of"]["clients"] > 1
    ]
    return markdown(heads, rows)


def one_request(tables: Mapping[str, Rows]) -> str:
    """Rate and time of requests with a thousand texts."""
    heads = ("texts", "texts/s", *SHARES, "seconds for 1,000", "padding")
    rows = [
        [
            row["of"]["mix"],
            format_spread(row, "texts_per_s"),
            format_spread(row, "share_of_limit", ratio),
            format_median(row, "share_of_tuned", ratio),
            format_median(row, "share_of_side_by_side", ratio),
            format_median(row, "p50_ms", lambda value: number(value / 1000)),
            format_median(row, "padding", percent),
        ]
        for row in tables["one-request"]
    ]
    return markdown(heads, rows)


def single_client(tables: Mapping[str, Rows]) -> str:
    """Latency of one client, and of `encode` of one text."""
    heads = ("texts", "`encode` in process, p50 ms", "served, p50 ms", "difference, ms")
    rows = [
        [
            row["of"]["mix"],
            format_spread(row, "encode_p50_ms"),
            format_spread(row, "p50_ms"),
            format_spread(row, "difference_ms"),
        ]
        for row in tables["single-client"]
    ]
    return markdown(heads, rows)


def redis(tables: Mapping[str, Rows]) -> str:
    """Redis' CPU per request, in every shape."""
    heads = ("model", "AOF", "gateways", "clients", "Redis µs", "commands", "entries in the queue", "requests/s")
    rows = [
        [
            row["of"]["model"].partition(":")[0],
            "everysec" if row["of"]["appendonly"] else "off",
            str(row["of"]["gateways"]),
            f"{row['of']['clients']:,}",
            format_spread(row, "cpu_us.redis"),
            format_median(row, "redis_commands"),
            format_median(row, "queue_entries"),
            format_median(row, "requests_per_s"),
        ]
        for row in tables["redis"]
    ]
    return markdown(heads, rows, left=2)


def processes(tables: Mapping[str, Rows]) -> str:
    """Connections and memory with 5,000 requests in flight."""
    heads = ("process", "requests in flight", "connections to Redis", "memory (RSS), MB", "torch imported")
    rows = [
        [
            row["of"]["role"],
            *(format_median(row, name, lambda value: f"{value:,.0f}") for name in ("in_flight", "redis_connections")),
            format_spread(row, "rss_mb"),
            "yes" if row["figures"]["torch"]["max"] else "no",
        ]
        for row in tables["processes"]
        if row["of"]["role"] in ROLES
    ]
    return markdown(heads, rows)


def generators(tables: Mapping[str, Rows]) -> str:
    """Figures of both load generators for one server, and their own cost."""
    heads = ("generator", "requests/s", "p50 ms", "its CPU µs per request")
    rows = [
        [
            row["of"]["generator"],
            format_spread(row, "requests_per_s"),
            format_spread(row, "p50_ms"),
            format_spread(row, "cpu_us"),
        ]
        for row in tables["generators"]
    ]
    return markdown(heads, rows)


def backends(tables: Mapping[str, Rows]) -> str:
    """Speed and accuracy of the backends and their number formats."""
    mixes = ("short", "mixed")
    heads = (
        "backend",
        "format",
        "with",
        *(head for mix in mixes for head in (f"{mix} texts/s", "×")),
        "smallest cosine",
    )
    rows = [
        [
            row["of"]["backend"],
            row["of"]["format"],
            row["of"]["with"] or "–",
            *(
                cell
                for mix in mixes
                for cell in (format_spread(row, f"{mix}_texts_per_s"), format_median(row, f"{mix}_speedup", ratio))
            ),
            format_median(row, "largest_distance", cosine),
        ]
        for row in tables["backends"]
    ]
    return markdown(heads, rows, left=3)


def cosine(distance: float) -> str:
    """Returns the cosine at a distance."""
    return f"{1 - distance:.6f}"


def http(tables: Mapping[str, Rows]) -> str:
    """The gateway's CPU per request, in total and beyond HTTP."""
    heads = ("server", "gateway's CPU µs per request", "requests/s")
    rows = [
        [row["of"]["server"], format_spread(row, "cpu_us.gateway"), format_median(row, "requests_per_s")]
        for row in tables["http"]
    ]
    return markdown(heads, rows)
