"""The settings that are tried, and which are neighbours. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from gpuworker.settings import WorkerSettings

Candidate = frozenset[tuple[str, str]]
"""The settings that differ from the defaults, with their values as text; empty: the defaults."""

DEFAULTS: Candidate = frozenset()

BATCH_SIZES = ("8", "16", "32", "64", "128", "256", "512")
BATCH_TOKENS = {
    "cpu": ("128", "256", None, "1024", "2048", "4096"),
    "gpu": ("4096", "8192", None, "32768", "65536"),
}
WAITS_MS = (2, 5, 10, 20, 50)
MAX_WAIT_SHARE = 0.25
"""A fixed wait of more than this share of the budget leaves too little of it to queue and run."""

MAX_RUNNERS = 8


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting and its values in order, as text; None is the default."""

    name: str
    values: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """What decides which values make sense: the device, its cores (1 on a GPU), and whether the model reads tokens."""

    device: str
    cores: int
    has_tokens: bool


def default_of(name: str) -> str:
    """Returns the default of a setting of the worker, as it is written here: 0 and not 0.0."""
    value = WorkerSettings.model_fields[name].default
    return value if isinstance(value, str) else f"{value:g}"


def search_settings(machine: Machine, budget_ms: float, names: Collection[str]) -> tuple[Setting, ...]:
    """Returns those settings of these names that there is something to try of, those first that matter most."""
    on_cpu = machine.device == "cpu"
    waits = (str(wait) for wait in WAITS_MS if wait <= budget_ms * MAX_WAIT_SHARE)
    fewer = tuple(str(2**k) for k in range(MAX_RUNNERS) if 2**k < min(machine.cores, MAX_RUNNERS))
    everything = [
        _setting("max_batch_size", BATCH_SIZES),
        _setting("max_batch_wait_ms", ("auto", "0", *waits)),
    ]
    if machine.has_tokens:
        everything = [
            Setting("max_batch_tokens", BATCH_TOKENS["cpu" if on_cpu else "gpu"]),
            *everything,
            Setting("runners", (*fewer, None) if on_cpu else (None, "2")),
        ]
    return tuple(knob for knob in everything if knob.name in names and len(knob.values) > 1)


def _setting(name: str, values: tuple[str, ...]) -> Setting:
    default = default_of(name)
    return Setting(name, tuple(None if value == default else value for value in values))


def neighbours(choice: Candidate, knob: Setting, way: int) -> Iterator[Candidate]:
    """Yields the choices that differ from this one in the one setting: upwards (`way` 1) or downwards (-1), in turn."""
    at = knob.values.index(dict(choice).get(knob.name))
    others = frozenset(pair for pair in choice if pair[0] != knob.name)
    end = len(knob.values) if way > 0 else -1
    for i in range(at + way, end, way):
        value = knob.values[i]
        yield others if value is None else others | {(knob.name, value)}


def describe_candidate(choice: Candidate) -> str:
    """Names a choice for people."""
    return ", ".join(f"{name}={value}" for name, value in sorted(choice)) or "defaults"
