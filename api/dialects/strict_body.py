"""Bodies of Redbatch's own API, in which a field that does not exist is an error that names it. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from shared.errors import InvalidRequestError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""The names that an error repeats. Anything else may be a client's text, which no message holds."""

ROUTE_OF_FIELD = {"input": "POST /v1/embeddings", **dict.fromkeys(("inputs", "text", "texts"), "POST /embed")}
"""The route for texts that takes a field of inputs: clients mix these up."""


class StrictBody(BaseModel):
    """A body whose unknown fields are refused.

    Validation keeps them instead of forbidding them: each forbidden one of a million fields would be an error in
    memory, and the caller names only the first.
    """

    model_config = ConfigDict(strict=True, extra="allow", json_schema_extra={"additionalProperties": False})

    def check_fields(self, model: type[BaseModel] | None = None) -> None:
        """Raises InvalidRequestError: the body has an unknown field. The advice names fields of `model`, or its own."""
        if self.model_extra:
            raise unknown_field_error(next(iter(self.model_extra)), fields_of(model or type(self)))


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Returns the fields of a body by the names that clients use."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def unknown_field_error(name: str, known: Iterable[str]) -> InvalidRequestError:
    """Returns the error for a field of a body that does not exist; the advice also names the route that takes it."""
    elsewhere = f"; {ROUTE_OF_FIELD[name]} takes {name}" if name in ROUTE_OF_FIELD else ""
    advice = _nearest_name(name, known) or f"the fields are {', '.join(known)}{elsewhere}."
    return _unknown_name_error(name, "body", f"there is no such field; {advice}")


def unknown_parameter_error(name: str, known: Iterable[str]) -> InvalidRequestError:
    """Returns the error for a parameter of a query that does not exist."""
    advice = _nearest_name(name, known) or f"this route takes {', '.join(known) or 'none'}."
    return _unknown_name_error(name, "query", f"there is no such parameter; {advice}")


def check_no_query(query: Mapping[str, str]) -> None:
    """Raises InvalidRequestError: a request has parameters in its query although its body is a JSON document."""
    for name in query:
        shown = shown_name(name)
        message = f"{shown or 'query'}: send options in the body, not in the query."
        raise InvalidRequestError(message, param=shown, quoted=shown or "")


def _nearest_name(name: str, known: Iterable[str]) -> str:
    fields = [each for each in known if each in ROUTE_OF_FIELD] if name in ROUTE_OF_FIELD else known
    nearest = difflib.get_close_matches(name, fields, n=1) if shown_name(name) else []
    return f"did you mean {nearest[0]}?" if nearest else ""


def _unknown_name_error(name: str, place: str, advice: str) -> InvalidRequestError:
    shown = shown_name(name)
    return InvalidRequestError(f"{shown or place}: {advice}", param=shown, quoted=shown or "")


def shown_name(name: str) -> str | None:
    """Returns the name of a field if an error may repeat it, or None."""
    return name if _NAME.fullmatch(name) else None
