"""The settings to search, their values, and the neighbours of a candidate. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from gpuworker.settings import WorkerSettings

Candidate = frozenset[tuple[str, str]]
"""The settings that differ from the defaults, with their values as text; empty: the defaults."""

DEFAULTS: Candidate = frozenset()

BATCH_SIZES = tuple(str(2**k) for k in range(3, 14))
BATCH_TOKENS = {
    "cpu": ("128", "256", None, "1024", "2048", "4096"),
    "gpu": ("4096", "8192", None, "32768", "65536"),
}
WAITS_MS = (2, 5, 10, 20, 50)
MAX_WAIT_SHARE = 0.25
"""A fixed wait of more than this fraction of the budget leaves too little of it for queueing and inference."""

MAX_RUNNERS = 8


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting and its values in order, as text; None is the default."""

    name: str
    values: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """What determines useful values: the device, its cores (1 on a GPU), and whether the model reads tokens."""

    device: str
    cores: int
    has_tokens: bool


def default_of(name: str) -> str:
    """Returns the default of a worker setting as text, in the notation of this module: 0 and not 0.0."""
    value = WorkerSettings.model_fields[name].default
    return value if isinstance(value, str) else f"{value:g}"


def search_settings(machine: Machine, budget_ms: float, names: Collection[str]) -> tuple[Setting, ...]:
    """Returns the named settings that have more than one value to try, the most effective first."""
    is_cpu = machine.device == "cpu"
    waits = (str(wait) for wait in WAITS_MS if wait <= budget_ms * MAX_WAIT_SHARE)
    fewer_runners = tuple(str(2**k) for k in range(MAX_RUNNERS) if 2**k < min(machine.cores, MAX_RUNNERS))
    settings = [
        _setting("max_batch_size", BATCH_SIZES),
        _setting("max_batch_wait_ms", ("auto", "0", *waits)),
    ]
    if machine.has_tokens:
        settings = [
            Setting("max_batch_tokens", BATCH_TOKENS["cpu" if is_cpu else "gpu"]),
            *settings,
            Setting("runners", (*fewer_runners, None) if is_cpu else (None, "2")),
        ]
    return tuple(setting for setting in settings if setting.name in names and len(setting.values) > 1)


def _setting(name: str, values: tuple[str, ...]) -> Setting:
    default = default_of(name)
    return Setting(name, tuple(None if value == default else value for value in values))


def neighbours(candidate: Candidate, setting: Setting, direction: int) -> Iterator[Candidate]:
    """Yields the candidates that differ from this one in one setting, nearest first.

    Args:
        candidate: where to start.
        setting: the setting that differs.
        direction: 1 for larger values, -1 for smaller ones.
    """
    at = setting.values.index(dict(candidate).get(setting.name))
    others = frozenset(pair for pair in candidate if pair[0] != setting.name)
    end = len(setting.values) if direction > 0 else -1
    for i in range(at + direction, end, direction):
        value = setting.values[i]
        yield others if value is None else others | {(setting.name, value)}


def describe_candidate(candidate: Candidate) -> str:
    """Returns a readable name of a candidate."""
    return ", ".join(f"{name}={value}" for name, value in sorted(candidate)) or "defaults"
