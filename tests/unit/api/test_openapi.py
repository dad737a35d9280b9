"""The OpenAPI description: groups of routes, locks, and examples of bodies that the gateway accepts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import orjson
import pytest

from api.app import UNAUTHENTICATED_PATHS, description
from api.dialects.operations import TAGS
from api.dispatch.size_limits import InputLimit
from api.jobs.ndjson import NdjsonReader
from api.jobs.schema import NDJSON_TYPES, parse_job_body
from api.routes import DIALECTS
from api.settings import GatewaySettings

DESCRIPTION = description()
JSON = "application/json"


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yields path, method and description of each operation."""
    for path, methods in DESCRIPTION["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


BODIES = {path: op["requestBody"]["content"] for path, _, op in operations() if "requestBody" in op}


def with_definitions(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns a schema that can be used on its own."""
    return schema | {"components": DESCRIPTION["components"]}


def examples_of(path: str) -> list[Any]:
    """Returns the examples of the JSON body of a route."""
    schema = BODIES[path][JSON]["schema"]
    if "$ref" in schema:
        schema = DESCRIPTION["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    examples: list[Any] = schema["examples"]
    return examples


def test_each_route_is_in_one_group() -> None:
    """The groups are listed in the order in which the page shows them, and none is empty."""
    names = [tag["name"] for tag in TAGS]
    assert [tag["name"] for tag in DESCRIPTION["tags"]] == names
    assert names == ["Embeddings", "OpenAI", "TEI", "Jobs", "Operations"]
    used = [operation["tags"] for _, _, operation in operations()]
    assert {len(tags) for tags in used} == {1}
    assert {tag for tags in used for tag in tags} == set(names)


def test_only_open_routes_have_no_lock() -> None:
    """The page shows a lock for each route that may need a key, in either of two headers, and for no other."""
    schemes = DESCRIPTION["components"]["securitySchemes"].values()
    assert {(each["type"], each.get("scheme") or each["name"]) for each in schemes} == {
        ("http", "bearer"),
        ("apiKey", "x-api-key"),
    }
    assert {name for each in DESCRIPTION["security"] for name in each} == {"bearer", "header"}
    for path, method, operation in operations():
        is_open = path in UNAUTHENTICATED_PATHS and method == "get"
        assert (operation.get("security") == []) == is_open, (method, path)


def test_routes_with_a_lock_list_the_errors_of_keys() -> None:
    """A wrong key, too many of them, and Redis out of reach are answers of each route that may need a key."""
    for path, method, operation in operations():
        if operation.get("security") != []:
            assert {"401", "429", "503"} <= operation["responses"].keys(), (method, path)


@pytest.mark.parametrize("path", BODIES)
def test_the_gateway_accepts_the_examples_of_each_body(path: str) -> None:
    """They fit the schema, and the route's dialect parses them: what the page proposes can be sent."""
    validator = jsonschema_rs.Draft202012Validator(with_definitions(BODIES[path][JSON]["schema"]))
    examples = examples_of(path)
    assert examples
    for example in examples:
        validator.validate(example)
        body = orjson.dumps(example)
        if path == "/jobs":
            assert parse_job_body(body).values()
        else:
            request = DIALECTS[path].for_body(body).parse(body, {}, GatewaySettings().requests)
            assert request.inputs


@pytest.mark.parametrize("kind", NDJSON_TYPES)
def test_the_example_of_a_body_of_lines_is_valid(kind: str) -> None:
    """Each of its lines is an input of a job."""
    (example,) = BODIES["/jobs"][kind]["schema"]["examples"]
    reader = NdjsonReader(10, 100, InputLimit(100, "max_input_bytes"))
    assert len([*reader.feed(example.encode()), *reader.end()]) == 2
