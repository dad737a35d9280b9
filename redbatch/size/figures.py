"""The measured figures of `measured.json`, which `make bench` writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

FILE = "measured.json"


@dataclass(frozen=True, slots=True)
class Source:
    """Where the figures come from: commit, time and machine of the run, its command, and the tables that have them."""

    commit: str
    started: str
    machine: str
    command: str
    tables: str


@dataclass(frozen=True, slots=True)
class ModelSpeed:
    """Vectors per second of one worker for texts of a mean number of tokens."""

    tokens: float
    vectors_per_s: float


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    """A model on a CPU: the cores of its worker, and its speed for texts of several lengths, short ones first."""

    cores_per_worker: int
    speeds: Sequence[ModelSpeed]


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of a request of one input.

    Attributes:
        source: of all figures.
        tokens: of the input.
        dim: numbers of the vector.
        cpu_us: CPU (µs) by role, with a model that costs nothing.
        redis_in_bytes: what Redis receives for a request, from the gateway and the worker together.
        redis_out_bytes: what Redis sends for a request, to both together.
        models: models by name.
    """

    source: Source
    tokens: float
    dim: int
    cpu_us: Mapping[str, float]
    redis_in_bytes: float
    redis_out_bytes: float
    models: Mapping[str, MeasuredModel]


def read_measured() -> Measured:
    """Returns the figures of this version."""
    values = json.loads(files(__package__).joinpath(FILE).read_text(encoding="utf-8"))
    models = {
        name: MeasuredModel(model["cores_per_worker"], [ModelSpeed(**speed) for speed in model["speeds"]])
        for name, model in values.pop("models").items()
    }
    return Measured(source=Source(**values.pop("source")), models=models, **values)
