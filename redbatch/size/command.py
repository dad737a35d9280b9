"""Implementation of `redbatch size`."""

from __future__ import annotations

import math

from redbatch.exit_codes import report_misuse
from redbatch.size import view
from redbatch.size.estimate import FREE, Requirements, WorkerSpeed, estimate, speed_of
from redbatch.size.figures import Measured, read_measured
from redbatch.size.view import SizeView
from redbatch.state_printer import state_printer
from redbatch.terminal import make_console
from shared.model_names import canonical_model


class UnknownSpeedError(Exception):
    """The speed of a model is not measured; the message says how to measure it."""


def show_size(needed: Requirements, model: str, vectors_per_s: float | None, *, in_json: bool) -> int:
    """Prints the deployment for these requirements. Returns the exit code: 2 if the model's speed is not known."""
    try:
        result = compute(needed, model, vectors_per_s)
    except UnknownSpeedError as error:
        return report_misuse(str(error))
    with state_printer(make_console(), view.as_text, view.as_json, in_json=in_json) as show:
        show(result)
    return 0


def compute(needed: Requirements, model: str, vectors_per_s: float | None) -> SizeView:
    """Returns the deployment; `vectors_per_s` of one worker overrides the measured figure. Raises UnknownSpeedError."""
    measured, name = read_measured(), canonical_model(model)
    speed = find_speed(name, vectors_per_s, needed.tokens_per_input, measured)
    return SizeView(name, needed, speed, estimate(needed, speed, measured), measured)


def find_speed(model: str, vectors_per_s: float | None, tokens: float, measured: Measured) -> WorkerSpeed:
    """Returns the given speed, or that of a measured model. Raises UnknownSpeedError if there is neither."""
    if vectors_per_s is not None:
        return WorkerSpeed(vectors_per_s, cores=None)
    if model == FREE:
        return WorkerSpeed(math.inf, cores=1)
    if model in measured.models:
        return speed_of(measured.models[model], tokens)
    known = ", ".join([*measured.models, FREE])
    raise UnknownSpeedError(
        f"--model {model}: its vectors per second are not measured (known: {known}). Run one worker of it, measure it "
        "with `redbatch bench` (inputs/s) or `redbatch tune`, and pass --vectors-per-s-per-worker"
    )
