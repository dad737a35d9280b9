"""The schemas of bodies and answers in the OpenAPI description.

They are made when the description is first read: at each start of a gateway they would take a fifth of the time. The
modules that describe routes register their models here, when they are imported. Pure but for that.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, TypeAdapter

from api.dialects.headers import JSON

Schema = dict[str, Any]
Answers = dict[int | str, dict[str, Any]]

_REF = "#/components/schemas/"
_TEMPLATE = _REF + "{model}"
_LATER = "later:"
"""Begins the reference to an answer until the description is read; the number of its model follows."""

_bodies: dict[str, tuple[type[BaseModel], list[str]]] = {}
_answers: dict[int, Any] = {}
"""By their ids: a model has one schema, however many answers have it."""


def body_schema(model: type[BaseModel], required: list[str] | None = None) -> Schema:
    """Returns a reference to the schema of a body.

    Args:
        model: of the body.
        required: fields that are parsed by hand and must be present.

    Raises:
        ValueError: another model has its name.
    """
    if _bodies.setdefault(model.__name__, (model, required or []))[0] is not model:
        raise ValueError(f"there are two models of bodies with the name {model.__name__}")
    return {"$ref": _REF + model.__name__}


def without_models(answers: Answers) -> Answers:
    """Returns the descriptions of answers for FastAPI: each with a reference to a schema instead of its `model`."""
    return {status: _without_model(answer) for status, answer in answers.items()}


def _without_model(answer: dict[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in answer.items() if name != "model"}
    if "model" not in answer:
        return rest
    model = answer["model"]
    _answers[id(model)] = model
    content = answer.get("content", {})
    schema = {"schema": {"$ref": f"{_LATER}{id(model)}"}}
    return rest | {"content": content | {JSON: content.get(JSON, {}) | schema}}


def complete(description: dict[str, Any]) -> dict[str, Any]:
    """Returns a description of OpenAPI with the schemas of all bodies and answers."""
    adapters = [(str(number), "serialization", TypeAdapter(model)) for number, model in _answers.items()]
    schemas, definitions = TypeAdapter.json_schemas(adapters, ref_template=_TEMPLATE)  # type: ignore[arg-type]
    named = description["components"]["schemas"] | definitions.get("$defs", {}) | _body_schemas()
    answers = {f"{_LATER}{number}": schema for (number, _), schema in schemas.items()}
    described: dict[str, Any] = _resolve(description, answers)
    return described | {"components": {"schemas": named}}


def _body_schemas() -> dict[str, Schema]:
    named: dict[str, Schema] = {}
    for name, (model, required) in _bodies.items():
        schema = model.model_json_schema(ref_template=_TEMPLATE)
        named |= schema.pop("$defs", {})
        if required:
            schema["required"] = [*required, *schema.get("required", [])]
        named[name] = schema
    return named


def _resolve(value: Any, schemas: dict[str, Schema]) -> Any:  # noqa: ANN401 - any JSON value
    """Returns a JSON value in which the references to answers are replaced."""
    if isinstance(value, dict):
        if str(value.get("$ref", "")).startswith(_LATER):
            return schemas[value["$ref"]]
        return {name: _resolve(each, schemas) for name, each in value.items()}
    if isinstance(value, list):
        return [_resolve(each, schemas) for each in value]
    return value
