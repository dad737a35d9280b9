"""The OpenAPI description of GET /console/state. Pure."""

from __future__ import annotations

from api.dialects.console_models import ConsoleState
from api.dialects.example_errors import KEY_ERRORS
from api.dialects.operations import NATIVE, TAG_OPERATIONS, Operation, error_answers
from shared.errors import ForbiddenError, InvalidRequestError

_ERRORS = (
    InvalidRequestError("query: there is no such parameter; this route takes none."),
    *KEY_ERRORS,
    ForbiddenError("This key lacks the scope admin: its scopes are embed."),
)
_DESCRIPTIONS = {
    400: "A parameter, as there is none",
    429: "Too many wrong keys came from this address; `Retry-After` says when to retry",
    503: "The API key cannot be checked, as Redis is unreachable",
}

CONSOLE_OPERATION = Operation(
    "The state of all queues, as `redbatch queue --json` prints it",
    {},
    {
        200: {
            "description": "The state, as read a second ago at most; also while Redis is unreachable, with the reason",
            "model": ConsoleState,
        },
        **error_answers({NATIVE: _ERRORS}, _DESCRIPTIONS),
    },
    TAG_OPERATIONS,
)
