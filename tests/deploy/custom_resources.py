"""Whether a custom resource has the fields of its definition, and no others."""

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


def known(kind: str) -> bool:
    """Whether there is a schema of this kind."""
    return (SCHEMAS / f"{kind}.json").exists()


def faults(resource: dict[str, Any]) -> list[str]:
    """Returns what is wrong with a resource of a kind that is known, and where: a misspelt field, a wrong type."""
    found = _validator(resource["kind"]).iter_errors(resource)
    return [f"{'/'.join(map(str, each.instance_path))}: {each.message}" for each in found]
