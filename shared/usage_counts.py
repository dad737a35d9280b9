"""What tenants have used, as counted in one process until it is written to Redis, and sums of it for reports. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

ANONYMOUS = "(anonymous)"
"""How reports name the clients without a tenant. No tenant's name has parentheses."""

OTHER = "(other)"
"""The tenant of what is counted beyond the bound of rows."""

MAX_ROWS = 500
"""Maximum rows of an hour, and of a process until it writes them: a row is a tenant, a queue and an operation."""

MAX_LABELS = 100
"""Maximum tenants with separate metrics, beside OTHER."""

GROUPS = ("hour", "day", "tenant", "model", "operation")
"""By what a report may group rows, in the order of its columns."""

DEFAULT_GROUPS = "tenant,model,operation"


class UsageKey(NamedTuple):
    """What a row counts: a tenant ("" for clients without one), a queue, and an operation of shared.messages.OPS.

    The queue and the operation of a request are "" if it was refused before they were known.
    """

    tenant: str
    queue: str
    op: str


@dataclass(slots=True)
class Usage:
    """Counts of a row.

    Attributes:
        requests: answered with a result; a job is one, when it is accepted.
        refusals: answered with a status from 400 to 499.
        failures: answered with a status from 500.
        inputs: that workers answered, or the cache.
        tokens: that the model read of the inputs which workers answered.
        cached_tokens: of the inputs which the cache answered.
        device_ms: run time of batches in the model, each shared out to its inputs by their tokens.
    """

    requests: int = 0
    refusals: int = 0
    failures: int = 0
    inputs: int = 0
    tokens: int = 0
    cached_tokens: int = 0
    device_ms: float = 0.0

    def add(self, other: Usage) -> None:
        """Adds the counts of another row."""
        self.requests += other.requests
        self.refusals += other.refusals
        self.failures += other.failures
        self.inputs += other.inputs
        self.tokens += other.tokens
        self.cached_tokens += other.cached_tokens
        self.device_ms += other.device_ms


COUNTS = tuple(each.name for each in fields(Usage))
"""The names of the counts, in their order."""


class UsageCounts:
    """Rows of counts: at most MAX_ROWS, and beside these the rows of OTHER, which counts what finds no room."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str], Usage] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, tenant: str, queue: str, op: str) -> Usage:
        """Returns the row to count in. This is called for each request."""
        row = self._rows.get((tenant, queue, op))
        if row is not None:
            return row
        if len(self._rows) >= MAX_ROWS and tenant != OTHER:
            return self.row(OTHER, queue, op)
        row = self._rows[UsageKey(tenant, queue, op)] = Usage()
        return row

    def merge(self, rows: Mapping[UsageKey, Usage]) -> None:
        """Adds rows."""
        for key, usage in rows.items():
            self.row(*key).add(usage)

    def rows(self) -> dict[UsageKey, Usage]:
        """Returns all rows."""
        return {UsageKey(*key): usage for key, usage in self._rows.items()}

    def take(self) -> dict[UsageKey, Usage]:
        """Returns all rows, and begins again from none."""
        rows, self._rows = self.rows(), {}
        return rows


class TenantLabels:
    """The values of a label `tenant` of metrics: the first MAX_LABELS tenants that a process has seen, and OTHER."""

    def __init__(self) -> None:
        self._labels: set[str] = set()

    def label_of(self, tenant: str) -> str:
        """Returns the value for a tenant."""
        label = tenant or ANONYMOUS
        if label not in self._labels:
            if len(self._labels) >= MAX_LABELS:
                return OTHER
            self._labels.add(label)
        return label


class UsageHour(NamedTuple):
    """The rows of an hour, which is its number since the epoch; `day` and `name` are how a report shows it."""

    name: str
    day: str
    rows: Mapping[UsageKey, Usage]


ReportRow = tuple[tuple[str, ...], Usage]
"""The values of the groups of a row, and its counts."""


def parse_groups(text: str) -> tuple[str, ...]:
    """Returns the groups in a text, separated by commas. Raises ValueError: there is no such group."""
    groups = tuple(each for each in text.split(",") if each)
    if not set(groups) <= set(GROUPS):
        raise ValueError(f"group: send any of {', '.join(GROUPS)}, separated by commas.")
    return groups


class UsageReport:
    """Sums of rows by groups.

    Args:
        groups: of GROUPS. Without any there is one row, unless nothing was counted.
    """

    def __init__(self, groups: Sequence[str]) -> None:
        self.groups = tuple(each for each in GROUPS if each in groups)
        self._sums: dict[tuple[str, ...], Usage] = {}

    def __len__(self) -> int:
        return len(self._sums)

    def add(self, hour: UsageHour) -> None:
        """Adds the rows of an hour."""
        for key, usage in hour.rows.items():
            values = {
                "hour": hour.name,
                "day": hour.day,
                "tenant": key.tenant or ANONYMOUS,
                "model": key.queue,
                "operation": key.op,
            }
            group = tuple([values[each] for each in self.groups])
            total = self._sums.get(group)
            if total is None:
                total = self._sums[group] = Usage()
            total.add(usage)

    def rows(self) -> Iterable[ReportRow]:
        """Returns the sums, in the order of their groups."""
        return sorted(self._sums.items(), key=lambda each: each[0])

    def as_dicts(self) -> list[dict[str, str | int | float]]:
        """Returns the sums for JSON: groups and counts by name, milliseconds to three places."""
        return [
            {
                **dict(zip(self.groups, group, strict=True)),
                **{name: getattr(usage, name) for name in COUNTS},
                "device_ms": round(usage.device_ms, 3),
            }
            for group, usage in self.rows()
        ]
