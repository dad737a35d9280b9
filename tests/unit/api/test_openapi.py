"""The OpenAPI description: groups of routes, locks, and an example of each schema, body and answer."""

from __future__ import annotations

import contextlib
from typing import Any

import jsonschema_rs
import orjson
import pytest

from api.app import UNAUTHENTICATED_PATHS
from api.dialects.base import BaseDialect
from api.dialects.operations import TAGS
from api.dialects.response_models import NULL
from api.dispatch.size_limits import InputLimit
from api.jobs.ndjson import NdjsonReader
from api.jobs.schema import NDJSON_TYPES, parse_job_body
from api.routes import DIALECTS
from api.settings import GatewaySettings
from shared.errors import RequestError
from tests.openapi_examples import ANSWERS, BODIES, DESCRIPTION, JSON, SCHEMAS, examples_of, operations


def check(example: object, schema: dict[str, Any]) -> None:
    """Raises ValidationError: an example does not fit a schema."""
    jsonschema_rs.Draft202012Validator(schema | {"components": DESCRIPTION["components"]}).validate(example)


def test_each_route_is_in_one_group() -> None:
    """The groups are listed in the order in which the page shows them, and none is empty."""
    names = [tag["name"] for tag in TAGS]
    assert [tag["name"] for tag in DESCRIPTION["tags"]] == names
    assert names == ["Embeddings", "Reranking", "OpenAI", "TEI", "Cohere", "Jobs", "Operations"]
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


def test_actions_always_have_a_lock() -> None:
    """A gateway that requires no keys shows no other locks."""
    actions = {(path, method) for path, method, operation in operations() if operation.get("security")}
    assert actions == {
        ("/console/dead/{id}", "get"),
        ("/console/dead/{id}", "delete"),
        ("/console/dead/{id}/requeue", "post"),
        ("/console/jobs/{id}", "delete"),
    }


def test_routes_with_a_lock_list_the_errors_of_keys() -> None:
    """A wrong key, too many of them, and Redis out of reach are answers of each route that may need a key."""
    for path, method, operation in operations():
        if operation.get("security") != []:
            assert {"401", "429", "503"} <= operation["responses"].keys(), (method, path)


def has_inputs(body: bytes, dialect: BaseDialect) -> bool:
    """Whether a dialect finds inputs in a body."""
    with contextlib.suppress(RequestError):
        return bool(dialect.parse(body, {}, GatewaySettings().requests).inputs)
    return False


@pytest.mark.parametrize("path", BODIES)
def test_the_gateway_accepts_the_examples_of_each_body(path: str) -> None:
    """They fit the schema, and the route's dialect parses them: what the page proposes can be sent."""
    examples = examples_of(BODIES[path][JSON])
    assert examples
    for example in examples:
        check(example, BODIES[path][JSON]["schema"])
        body = orjson.dumps(example)
        if path == "/jobs":
            assert parse_job_body(body).values()
        else:
            dialect = DIALECTS[path].for_body(body)
            candidates = [dialect, *(each for _, each in dialect.for_ops(body))]  # of which the model decides
            assert any(has_inputs(body, each) for each in candidates)


@pytest.mark.parametrize("kind", NDJSON_TYPES)
def test_the_example_of_a_body_of_lines_is_valid(kind: str) -> None:
    """Each of its lines is an input of a job."""
    (example,) = BODIES["/jobs"][kind]["schema"]["examples"]
    reader = NdjsonReader(10, 100, InputLimit(100, "max_input_bytes"))
    assert len([*reader.feed(example.encode()), *reader.end()]) == 2


@pytest.mark.parametrize("name", SCHEMAS)
def test_each_schema_has_examples_that_fit(name: str) -> None:
    """The page lists all schemas, each with an example."""
    assert SCHEMAS[name]["examples"]
    for example in SCHEMAS[name]["examples"]:
        check(example, SCHEMAS[name])


@pytest.mark.parametrize("name", ANSWERS)
def test_each_answer_has_examples_that_fit(name: str) -> None:
    """Each answer in JSON has a schema, and examples of it; other answers are pages, arrays or empty."""
    if name == "get /ping 200":
        assert ANSWERS[name] == {}
        return
    assert ANSWERS[name].keys() - {JSON} <= {"text/html", "application/x-npy"}
    content = ANSWERS[name][JSON]
    assert content["schema"]
    examples = examples_of(content)
    assert examples
    for example in examples:
        check(example, content["schema"])


def test_examples_keep_fields_that_are_null() -> None:
    """FastAPI would leave them out, but `param` of OpenAI's errors and `next_url` of the last page are null."""
    full = examples_of(ANSWERS["post /v1/embeddings 429"][JSON])[0]
    assert full["error"]["param"] is None
    assert [each["next_url"] for each in SCHEMAS["JobResultPage"]["examples"]][-1] is None
    assert NULL not in str(DESCRIPTION)
