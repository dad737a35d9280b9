"""The OpenAPI descriptions of the routes that the console reads. Pure."""

from __future__ import annotations

from pydantic import BaseModel

from api.console.history_models import ConsoleHistory
from api.console.leases_models import ConsoleLeases
from api.console.state_models import ConsoleState
from api.console.tenants_models import ConsoleTenants
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
    503: "Redis is unreachable",
}


def _operation(summary: str, description: str, model: type[BaseModel]) -> Operation:
    answers = {200: {"description": description, "model": model}, **error_answers({NATIVE: _ERRORS}, _DESCRIPTIONS)}
    return Operation(summary, {}, answers, TAG_OPERATIONS)


CONSOLE_OPERATION = _operation(
    "The state of all queues, as `redbatch queue --json` prints it",
    "The state, as read a second ago at most; also while Redis is unreachable, with the reason",
    ConsoleState,
)
HISTORY_OPERATION = _operation(
    "What the queues did in the last five minutes, and the errors that this gateway has answered",
    "A sample every two seconds, as columns",
    ConsoleHistory,
)
TENANTS_OPERATION = _operation(
    "What tenants have used in this hour and the last, and their limits",
    "The 50 tenants with the most tokens, as read five seconds ago at most",
    ConsoleTenants,
)
LEASES_OPERATION = _operation(
    "Who holds the GPUs that workers share, as `redbatch leases --json` prints it",
    "The pools of GPUs that live workers use, as read a second ago at most",
    ConsoleLeases,
)
