"""The options of a request that becomes a job: each one is kept, or refused by its name. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from api.dialects.headers import header_timeout_ms, lane_of
from api.dialects.parsing import parse_fields
from api.dialects.strict_body import fields_of, unknown_field_error
from shared.errors import InvalidRequestError
from shared.keys import BULK

REFUSED_VALUES = {
    ("on_error", "fail"): (
        'a job has the results of the inputs that do not fail, so send "null", or leave it out to have a request with '
        "an invalid input refused"
    ),
    ("encoding_format", "base64"): "the results of a job are JSON numbers or a .npy file, so send float",
}
"""Values of fields that a job cannot honour, and why."""


class JobOptions(NamedTuple):
    """What a job takes from a request beside its inputs and their options.

    `lane` is an index of keys.LANES: bulk, unless the client names another. `timeout_ms` is the client's time limit,
    or None.
    """

    lane: int
    timeout_ms: int | None


def parse_job_options(body: bytes, headers: Mapping[str, str], body_model: type[BaseModel]) -> JobOptions:
    """Returns the options of a request whose body its dialect has accepted.

    Raises:
        InvalidRequestError: a field is none of the body's, or has a value that a job cannot honour; the message names
            it.
    """
    fields = parse_fields(body) if body.lstrip()[:1] == b"{" else {}
    for name, known in _unknown_fields(body_model, fields):
        raise unknown_field_error(name, known)
    for (name, value), reason in REFUSED_VALUES.items():
        if fields.get(name) == value:
            raise InvalidRequestError(f"{name}: {reason}.", param=name)
    lane = lane_of(fields.get("priority"), headers, BULK)
    return JobOptions(lane, fields.get("timeout_ms") or header_timeout_ms(headers))


def _unknown_fields(
    model: type[BaseModel], values: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, list[str]]]:
    """Yields each unknown field, by its path, and the known ones in its place."""
    for name, value in values.items():
        field = fields_of(model).get(name)
        if field is None:
            yield prefix + name, [prefix + each for each in fields_of(model)]
        elif isinstance(value, dict) and isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _unknown_fields(field.annotation, value, f"{prefix}{name}.")
