"""Bodies of Redbatch's own API, in which a field that does not exist is an error that names it. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict

from shared.errors import InvalidRequestError

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
            raise unknown_field_error(next(iter(self.model_extra)), (model or type(self)).model_fields)


def unknown_field_error(
    name: str, known: Iterable[str], noun: str = "field", place: str = "body"
) -> InvalidRequestError:
    """Returns the error for a field that does not exist: it names the field, and the nearest known one or all.

    `noun` is what a message calls such a field, and `place` where it stands.
    """
    shown = shown_name(name)
    nearest = difflib.get_close_matches(name, known, n=1) if shown else []
    elsewhere = f"; {ROUTE_OF_FIELD[name]} takes {name}" if name in ROUTE_OF_FIELD else ""
    advice = f"did you mean {nearest[0]}?" if nearest else f"the {noun}s are {', '.join(known)}{elsewhere}."
    return InvalidRequestError(f"{shown or place}: there is no such {noun}; {advice}", param=shown, quoted=shown or "")


def shown_name(name: str) -> str | None:
    """Returns the name of a field if an error may repeat it, or None."""
    return name if _NAME.fullmatch(name) else None
