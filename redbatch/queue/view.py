"""The state of queues as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from redbatch.tables import PlainTable, labelled_line, plain_table
from shared.activity import ActivitySummary
from shared.eviction import EVICTION_WARNING, evicts
from shared.heartbeats import MIXED_MODELS, mixed_models
from shared.keys import LANES
from shared.messages import DOES_NOT_LOAD, FAILING, PREDICT, Heartbeat
from shared.process.log_text import printable_line
from shared.producer import QueueStats
from shared.queue_view import SILENT_S, QueueView, ShardView, queue_as_dict

LABEL_WIDTH = 9
NONE = "-"
NO_WORKER = "no worker is alive: start one with `redbatch worker`"


def as_json(queues: Sequence[QueueView]) -> str:
    """Returns one line of JSON for each queue."""
    return "\n".join(json.dumps(queue_as_dict(queue)) for queue in queues)


def as_text(queues: Sequence[QueueView]) -> RenderableType:
    """Returns a table of queues, or one queue in full."""
    if not queues:
        return Text("no worker has announced a queue: start one with `redbatch worker`", style="yellow")
    if len(queues) == 1:
        return _details(queues[0])
    table = _activity_table("queue", [(queue.name, queue) for queue in queues])
    window_s = max(queue.activity.window_s for queue in queues)
    explanation = (
        f"The last {window_s:.0f} s, as workers saw them; `failed` counts entries. All errors of clients, "
        "504s included, are in /metrics of the gateways."
    )
    silent = [_shard_line(number, each) for number, each in enumerate(queues[0].shards) if each.problem]
    warnings = [*map(_mixed_models, queues), _eviction(queues)]
    return Group(table, Text(explanation, "dim"), *silent, *filter(None, warnings))


def _activity_table(heading: str, rows: Sequence[tuple[str, QueueView | None]]) -> PlainTable:
    """Returns a table with a row for each queue, or for each shard of one; None: its Redis does not answer."""
    table = plain_table(heading)
    numbers = ("waiting", "oldest", "requests/s", "batch", "p50", "p99", "failed", "workers")
    table.add_columns(*numbers, justify="right", no_wrap=True)
    for name, queue in rows:
        if queue is None:
            table.add_row(name, *(NONE for _ in numbers), style="yellow")
            continue
        stats = queue.stats
        workers = Text(str(len(stats.workers)), style="" if stats.workers else "yellow")
        table.add_row(name, f"{stats.waiting:,}", _format_oldest(stats), *_format_activity(queue.activity), workers)
    return table


def _shard_line(number: int, shard: ShardView) -> Text:
    problem = f" is left out: {shard.problem}" if shard.problem else ""
    line = labelled_line(f"shard {number}", f"{shard.place}{problem}", LABEL_WIDTH)
    line.stylize("yellow" if problem else "")
    return line


def _mixed_models(queue: QueueView) -> Text | None:
    """Returns a warning if the workers of a queue have different models."""
    models = mixed_models(queue.stats.workers)
    if not models:
        return None
    return Text(f"{printable_line(queue.name)}: {printable_line(', '.join(models))}: {MIXED_MODELS}", style="yellow")


def _eviction(queues: Sequence[QueueView]) -> Text | None:
    """Returns a warning if Redis, which all queues share, may remove keys."""
    policies = {queue.stats.eviction_policy for queue in queues if evicts(queue.stats.eviction_policy)}
    if not policies:
        return None
    return Text(f"{EVICTION_WARNING}, which is {printable_line(', '.join(policies))} now", style="yellow")


def _format_activity(activity: ActivitySummary) -> tuple[str, ...]:
    batch = NONE if activity.batch_size is None else f"{activity.batch_size:.1f}"
    latencies = (_format_latency(activity.p50_ms), _format_latency(activity.p99_ms))
    return (f"{activity.requests_per_s:,.1f}", batch, *latencies, f"{activity.errors:,}")


def _format_latency(ms: float | None) -> str:
    if ms is None:
        return NONE
    return f"{ms:.1f} ms" if ms < 10 else f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"  # noqa: PLR2004


def _format_oldest(stats: QueueStats) -> str:
    return f"{stats.oldest_age_ms / 1000:.1f} s" if stats.entries else NONE


def _details(queue: QueueView) -> Group:
    """Returns the state of one queue, with a table of its workers."""
    stats = queue.stats
    size = f"{stats.bytes:,} bytes" if _is_function(stats) else f"about {stats.tokens:,} tokens"
    numbers = [
        ("waiting", f"{stats.waiting:,} entries"),
        ("in flight", f"{stats.pending:,} entries"),
        ("by lane", ", ".join(f"{n:,} {lane}" for lane, n in zip(LANES, stats.by_lane, strict=True))),
        ("total", f"{stats.inputs:,} inputs, {size}"),
        ("oldest", _format_oldest(stats) if stats.entries else "no entries"),
        *(_activity_facts(queue.activity) if stats.workers else ()),
    ]
    head = Text(f"Queue {printable_line(queue.name)}{_describe_shards(queue.shards)}", style="bold")
    lines = [labelled_line(label, value, LABEL_WIDTH) for label, value in numbers]
    shards: list[RenderableType] = [_shard_line(number, each) for number, each in enumerate(queue.shards)]
    if shards:
        shards.append(_activity_table("shard", [(str(number), each.queue) for number, each in enumerate(queue.shards)]))
    errors = [
        Text(f"{printable_line(beat.worker)}: {DOES_NOT_LOAD}: {printable_line(beat.load_error)}", style="yellow")
        for beat in stats.workers
        if beat.load_error
    ]
    warnings = [_mixed_models(queue), _eviction([queue])]
    return Group(head, *lines, *shards, _workers(queue), *errors, *filter(None, warnings))


def _describe_shards(shards: Sequence[ShardView]) -> str:
    """Returns of which shards the numbers are the sum; "" without shards."""
    num_silent = sum(each.queue is None for each in shards)
    return f": {len(shards) - num_silent} of {len(shards)} shards" if shards else ""


def _is_function(stats: QueueStats) -> bool:
    """Whether the model of a queue is a function, of whose inputs each counts as one token."""
    return stats.bytes > 0 or any(PREDICT in beat.ops for beat in stats.workers)


def _activity_facts(activity: ActivitySummary) -> list[tuple[str, str]]:
    requests_per_s, batch, p50, p99, failed = _format_activity(activity)
    return [
        ("rate", f"{requests_per_s} requests/s, {activity.inputs_per_s:,.1f} inputs/s"),
        ("batch", f"{batch} inputs on average" if activity.batch_size else "none ran"),
        ("latency", f"p50 {p50}, p99 {p99}" if activity.p50_ms else "no answers"),
        ("failed", f"{failed} entries in {activity.window_s:.0f} s; 504s and refusals: /metrics of the gateways"),
    ]


def _workers(queue: QueueView) -> PlainTable | Text:
    stats = queue.stats
    if not stats.workers:
        return Text(f"  {NO_WORKER}", style="yellow")
    table = plain_table("worker", "state", "model", "device")
    rate = "inputs/s" if _is_function(stats) else "tokens/s"
    table.add_columns("holds", "running", rate, "up", justify="right", no_wrap=True)
    for beat in sorted(stats.workers, key=lambda beat: beat.worker):
        up_s = max(0, stats.now_ms - beat.started_ms) // 1000
        silent_s = 0.0 if beat.load_error else queue.silent_s(beat)  # that worker has ended, and says why
        state = _format_state(beat) if silent_s < SILENT_S else f"silent for {silent_s:.0f} s, was {beat.state}"
        numbers = (
            str(beat.holds),
            str(beat.begun),
            f"{beat.tokens_per_s:,.0f}" if beat.tokens_per_s else "–",
            f"{up_s} s",
        )
        table.add_row(beat.worker, state, beat.model, beat.device, *numbers)
    return table


def _format_state(beat: Heartbeat) -> str:
    """Returns the state of a worker; of one whose model fails also how, if that is short, and when it tries again."""
    if not beat.failing or beat.load_error:
        return beat.state
    if beat.state != FAILING:
        return f"tries again: {printable_line(beat.failing)}"
    return f"{beat.state}: {printable_line(beat.failing)}" + (
        f", next try in {beat.retry_s:.0f} s" if beat.retry_s else ""
    )
