"""Validation of custom resources by the schemas of their kinds: the fields of the definition, and no others."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

SCHEMAS = Path(__file__).with_name("schemas")


@cache
def _validator(kind: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(json.loads((SCHEMAS / f"{kind}.json").read_text(encoding="utf-8")))


def has_schema(kind: str) -> bool:
    """Whether there is a schema of this kind."""
    return (SCHEMAS / f"{kind}.json").exists()


def violations(resource: dict[str, Any]) -> list[str]:
    """Returns violations of the schema of its kind with their paths, such as a misspelt field or a wrong type.

    Raises FileNotFoundError: there is no schema of this kind.
    """
    errors = _validator(resource["kind"]).iter_errors(resource)
    return [f"{'/'.join(map(str, each.instance_path))}: {each.message}" for each in errors]
