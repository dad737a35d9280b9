"""The OpenAPI description of GET /usage. Pure."""

from __future__ import annotations

from typing import Any

from api.dialects.example_errors import KEY_ERRORS
from api.dialects.operations import NATIVE, TAG_OPERATIONS, Operation, error_answers
from api.dialects.report_models import TenantUsage
from shared.errors import ForbiddenError, InvalidRequestError
from shared.usage_counts import GROUPS

_ERRORS = (
    InvalidRequestError("to: it must be after `from`."),
    *KEY_ERRORS,
    ForbiddenError("This key lacks the scope admin: its scopes are embed."),
)
_DESCRIPTIONS = {
    400: "A time that is none, an unknown group or parameter, or more than 10,000 rows",
    429: "Too many wrong keys came from this address; `Retry-After` says when to retry",
    503: "Redis is unreachable",
}


def _parameter(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": {"type": "string"}, "description": description}


USAGE_OPERATION = Operation(
    "What tenants have used, in sums of whole hours",
    {
        "parameters": [
            _parameter(
                "from", "The first hour, in UTC, such as 2026-11-26T14:00:00Z; by default 24 hours before `to`."
            ),
            _parameter("to", "The end of the last hour; by default that of the present one."),
            _parameter("group", f"Any of {', '.join(GROUPS)}, separated by commas; by default tenant,model,operation."),
        ]
    },
    {200: {"description": "Sums by group", "model": TenantUsage}, **error_answers({NATIVE: _ERRORS}, _DESCRIPTIONS)},
    TAG_OPERATIONS,
)
