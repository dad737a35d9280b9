"""The tables of docs/performance.md, from results as JSON has them. Pure."""

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
    """Returns a number with as many decimals as say something."""
    size = abs(value)
    decimals = 0 if size >= LARGE else 1 if size >= MIDDLE else 2
    return f"{value:,.{decimals}f}"


def percent(value: float) -> str:
    """Returns a share as per cent."""
    return f"{value:.1%}"


def ratio(value: float) -> str:
    """Returns a share as a ratio."""
    return f"{value:.2f}"


def median(row: Mapping[str, Any], name: str) -> float:
    """Returns the median of a figure that there is."""
    return float(row["figures"][name]["median"])


def middle(row: Mapping[str, Any], name: str, form: Callable[[float], str] = number) -> str:
    """Returns the median of a figure, or a dash when there is none."""
    figure = row["figures"].get(name)
    return NONE if figure is None else form(figure["median"])


def spread(row: Mapping[str, Any], name: str, form: Callable[[float], str] = number) -> str:
    """Returns a figure with its smallest and largest run."""
    figure = row["figures"].get(name)
    if figure is None or len(figure["runs"]) == 1:
        return middle(row, name, form)
    return f"{form(figure['median'])} ({form(figure['min'])} to {form(figure['max'])})"


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Returns a table whose first `left` columns are aligned to the left, and the others to the right."""
    rule = ["---" if i < left else "---:" for i in range(len(heads))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows))


def plumbing(tables: Mapping[str, Rows]) -> str:
    """Rate and latency with the null model."""
    heads = ("clients", "gateways", "requests/s", "p50 ms", "p95 ms", "p99 ms")
    rows = [
        [
            f"{row['of']['clients']:,}",
            str(row["of"]["gateways"]),
            spread(row, "requests_per_s"),
            spread(row, "p50_ms"),
            *(middle(row, name) for name in ("p95_ms", "p99_ms")),
        ]
        for row in tables["plumbing"]
    ]
    return markdown(heads, rows, left=0)


def plumbing_cost(tables: Mapping[str, Rows]) -> str:
    """CPU and Redis by request with the null model; where 5,000 were measured, them too."""
    measured = [*tables["plumbing"], *(row for row in tables.get("redis", ()) if is_plain_many(row["of"]))]
    rows = [[f"{row['of']['clients']:,}", str(row["of"]["gateways"]), *_cost(row)] for row in measured]
    heads = ("clients", "gateways", *ROLES, "sum", "wrk", "scripts", "commands", "bytes in", "bytes out")
    return markdown(heads, rows, left=0)


def is_plain_many(of: Mapping[str, Any]) -> bool:
    """Whether a row of Redis' cost is of the plainest cluster with thousands of clients."""
    return of["model"] == "null" and not of["appendonly"] and of["gateways"] == 1 and of["clients"] > MANY


def _cost(row: Mapping[str, Any]) -> list[str]:
    total = sum(median(row, f"cpu_us.{role}") for role in ROLES)
    names = ("redis_scripts", "redis_commands", "redis_in_bytes", "redis_out_bytes")
    cells = [middle(row, f"cpu_us.{role}") for role in ROLES]
    return [*cells, number(total), middle(row, "cpu_us.generator"), *(middle(row, name) for name in names)]


SHARES = ("× the limit", "× tuned", "× side by side")


def real(tables: Mapping[str, Rows]) -> str:
    """Rate, beside the model alone, and latency with MiniLM."""
    heads = ("texts", "clients", "texts/s", *SHARES, "p50 ms", "p95 ms", "p99 ms", "padding", "batch")
    rows = [
        [
            row["of"]["mix"],
            str(row["of"]["clients"]),
            spread(row, "requests_per_s"),
            spread(row, "share_of_limit", ratio),
            middle(row, "share_of_tuned", ratio),
            middle(row, "share_of_side_by_side", ratio),
            spread(row, "p50_ms"),
            *(middle(row, name) for name in ("p95_ms", "p99_ms")),
            middle(row, "padding", percent),
            middle(row, "batch_inputs"),
        ]
        for row in tables["real"]
    ]
    return markdown(heads, rows)


def real_cost(tables: Mapping[str, Rows]) -> str:
    """CPU by request with MiniLM."""
    heads = ("texts", "clients", *ROLES, "sum", "wrk", "scripts", "commands", "bytes in", "bytes out")
    rows = [[row["of"]["mix"], str(row["of"]["clients"]), *_cost(row)] for row in tables["real"]]
    return markdown(heads, rows)


def limit(tables: Mapping[str, Rows]) -> str:
    """Texts a second offline, by how they were run."""
    mixes = list(dict.fromkeys(row["of"]["mix"] for row in tables["limit"]))
    cells = {(row["of"]["how"], row["of"]["mix"]): spread(row, "texts_per_s") for row in tables["limit"]}
    hows = list(dict.fromkeys(how for how, _ in cells))
    rows = [[how, *(cells.get((how, mix), NONE) for mix in mixes)] for how in hows]
    best = [spread(row, "texts_per_s") for row in tables["best"]]
    tuned = [spread(row, "tuned_texts_per_s") for row in tables["best"]]
    side_by_side = [spread(row, "side_by_side_texts_per_s") for row in tables["best"]]
    heads = ("how", *(f"{mix}, texts/s" for mix in mixes))
    best_rows = [
        ["**the limit**: the best of each round, one at a time", *best],
        ["the best one at a time, tuned or not", *tuned],
        ["the best of all, *side by side*", *side_by_side],
    ]
    return markdown(heads, [*rows, *best_rows])


def gaps(tables: Mapping[str, Rows]) -> str:
    """How long a runner stood still between two batches though there was something to run."""
    heads = ("texts", "clients", "a batch, ms", "gap, mean ms", "p50 ms", "p95 ms", "p99 ms", "share of the time")
    names = ("batch_ms", "gap_ms", "gap_p50_ms", "gap_p95_ms", "gap_p99_ms")
    rows = [
        [
            row["of"]["mix"],
            str(row["of"]["clients"]),
            *(middle(row, name) for name in names),
            middle(row, "gap_share", percent),
        ]
        for row in tables["real"]
        if row["of"]["clients"] > 1
    ]
    return markdown(heads, rows)


def one_request(tables: Mapping[str, Rows]) -> str:
    """A thousand texts in one request."""
    heads = ("texts", "texts/s", *SHARES, "seconds for 1,000", "padding")
    rows = [
        [
            row["of"]["mix"],
            spread(row, "texts_per_s"),
            spread(row, "share_of_limit", ratio),
            middle(row, "share_of_tuned", ratio),
            middle(row, "share_of_side_by_side", ratio),
            middle(row, "p50_ms", lambda value: number(value / 1000)),
            middle(row, "padding", percent),
        ]
        for row in tables["one-request"]
    ]
    return markdown(heads, rows)


def alone(tables: Mapping[str, Rows]) -> str:
    """One client against `encode` of one text."""
    heads = ("texts", "`encode` in process, p50 ms", "served, p50 ms", "difference, ms")
    rows = [
        [
            row["of"]["mix"],
            spread(row, "encode_p50_ms"),
            spread(row, "p50_ms"),
            spread(row, "beyond_encode_ms"),
        ]
        for row in tables["alone"]
    ]
    return markdown(heads, rows)


def redis(tables: Mapping[str, Rows]) -> str:
    """Redis' CPU by request, in every shape."""
    heads = ("model", "AOF", "gateways", "clients", "Redis µs", "commands", "entries in the queue", "requests/s")
    rows = [
        [
            row["of"]["model"].partition(":")[0],
            "everysec" if row["of"]["appendonly"] else "off",
            str(row["of"]["gateways"]),
            f"{row['of']['clients']:,}",
            spread(row, "cpu_us.redis"),
            middle(row, "redis_commands"),
            middle(row, "queue_entries"),
            middle(row, "requests_per_s"),
        ]
        for row in tables["redis"]
    ]
    return markdown(heads, rows, left=2)


def held(tables: Mapping[str, Rows]) -> str:
    """Connections and memory at 5,000 in flight."""
    heads = ("process", "requests in flight", "connections to Redis", "memory (RSS), MB", "torch imported")
    rows = [
        [
            row["of"]["role"],
            *(middle(row, name, lambda value: f"{value:,.0f}") for name in ("in_flight", "redis_connections")),
            spread(row, "rss_mb"),
            "yes" if row["figures"]["torch"]["max"] else "no",
        ]
        for row in tables["held"]
        if row["of"]["role"] in ROLES
    ]
    return markdown(heads, rows)


def generators(tables: Mapping[str, Rows]) -> str:
    """What the two load generators say of one server, and what they cost."""
    heads = ("generator", "requests/s", "p50 ms", "its CPU µs per request")
    rows = [
        [row["of"]["generator"], spread(row, "requests_per_s"), spread(row, "p50_ms"), spread(row, "cpu_us")]
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
                for cell in (spread(row, f"{mix}_texts_per_s"), middle(row, f"{mix}_times_base", ratio))
            ),
            middle(row, "largest_distance", cosine),
        ]
        for row in tables["backends"]
    ]
    return markdown(heads, rows, left=3)


def cosine(distance: float) -> str:
    """Returns the cosine at a distance."""
    return f"{1 - distance:.6f}"


def http(tables: Mapping[str, Rows]) -> str:
    """The gateway's CPU beyond HTTP."""
    heads = ("what", "gateway's CPU µs per request", "requests/s")
    rows = [[row["of"]["what"], spread(row, "cpu_us.gateway"), middle(row, "requests_per_s")] for row in tables["http"]]
    return markdown(heads, rows)
