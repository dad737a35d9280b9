"""The OpenAPI description, and the examples in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from api.app import description

DESCRIPTION = description()
JSON = "application/json"


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yields path, method and description of each operation."""
    for path, methods in DESCRIPTION["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


SCHEMAS: dict[str, Any] = DESCRIPTION["components"]["schemas"]
BODIES = {path: op["requestBody"]["content"] for path, _, op in operations() if "requestBody" in op}
ANSWERS = {
    f"{method} {path} {status}": answer.get("content", {})
    for path, method, op in operations()
    for status, answer in op["responses"].items()
}


def examples_of(content: dict[str, Any]) -> list[Any]:
    """Returns the examples that a page shows of a body: those of the body, or those of its schema."""
    if "example" in content:
        return [content["example"]]
    return [each["value"] for each in content.get("examples", {}).values()] or _of_schema(content["schema"])


def _of_schema(schema: dict[str, Any]) -> list[Any]:
    """Returns the examples of a schema, or of the one that it refers to; or those of each of its alternatives."""
    if "anyOf" in schema and "examples" not in schema:
        parts = [_of_schema(each) for each in schema["anyOf"]]
        return [example for part in parts for example in part] if all(parts) else []
    named = SCHEMAS[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else {}
    examples: list[Any] = (named | schema).get("examples", [])
    return examples
