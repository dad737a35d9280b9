"""The settings that are tried, and which are neighbours. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from gpuworker.settings import WorkerSettings

Choice = frozenset[tuple[str, str]]
"""The settings that differ from the defaults, with their values as text; empty: the defaults."""

DEFAULTS: Choice = frozenset()

SIZES = ("8", "16", "32", "64", "128", "256", "512")
TOKENS = {
    "cpu": ("128", "256", None, "1024", "2048", "4096"),
    "gpu": ("4096", "8192", None, "32768", "65536"),
}
WAITS_MS = (2, 5, 10, 20, 50)
WAIT_SHARE = 0.25
"""A fixed wait of more than this share of the budget leaves too little of it to queue and run."""

MOST_RUNNERS = 8


@dataclass(frozen=True, slots=True)
class Knob:
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


def knobs(machine: Machine, budget_ms: float, names: Collection[str]) -> tuple[Knob, ...]:
    """Returns those settings of these names that there is something to try of, those first that matter most."""
    on_cpu = machine.device == "cpu"
    waits = (str(wait) for wait in WAITS_MS if wait <= budget_ms * WAIT_SHARE)
    fewer = tuple(str(2**k) for k in range(MOST_RUNNERS) if 2**k < min(machine.cores, MOST_RUNNERS))
    everything = [
        _knob("max_batch_size", SIZES),
        _knob("max_batch_wait_ms", ("auto", "0", *waits)),
    ]
    if machine.has_tokens:
        everything = [
            Knob("max_batch_tokens", TOKENS["cpu" if on_cpu else "gpu"]),
            *everything,
            Knob("runners", (*fewer, None) if on_cpu else (None, "2")),
        ]
    return tuple(knob for knob in everything if knob.name in names and len(knob.values) > 1)


def _knob(name: str, values: tuple[str, ...]) -> Knob:
    default = default_of(name)
    return Knob(name, tuple(None if value == default else value for value in values))


def neighbours(choice: Choice, knob: Knob, way: int) -> Iterator[Choice]:
    """Yields the choices that differ from this one in the one setting: upwards (`way` 1) or downwards (-1), in turn."""
    at = knob.values.index(dict(choice).get(knob.name))
    others = frozenset(pair for pair in choice if pair[0] != knob.name)
    end = len(knob.values) if way > 0 else -1
    for i in range(at + way, end, way):
        value = knob.values[i]
        yield others if value is None else others | {(knob.name, value)}


def shown(choice: Choice) -> str:
    """Names a choice for people."""
    return ", ".join(f"{name}={value}" for name, value in sorted(choice)) or "defaults"
