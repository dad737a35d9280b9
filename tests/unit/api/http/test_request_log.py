"""What the log lines of requests hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from api.http.request_log import TENANT, AccessLogApp, log_error
from api.tenants import Tenant
from shared.errors import ForbiddenError, InvalidRequestError, RedbatchError

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send


@pytest.mark.parametrize(
    ("error", "status", "key_id"),
    [(InvalidRequestError("No."), 400, "k-1"), (ForbiddenError("No.", key_id="k-2"), 403, "k-2")],
    ids=["the request's", "the refused one"],
)
async def test_an_error_without_a_key_leaves_that_of_the_request(
    error: RedbatchError, status: int, key_id: str
) -> None:
    """The access log names the API key of each request, however it ends."""

    async def refuse(scope: Scope, _receive: Receive, send: Send) -> None:
        scope["state"][TENANT] = Tenant("team-a", key_id="k-1")
        log_error(scope, status, error, "r-1")
        await send({"type": "http.response.start", "status": status, "headers": [(b"x-request-id", b"r-1")]})

    async def ignore(_message: Message) -> None: ...

    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/embed", "headers": [], "state": {}}
    with capture_logs() as lines:
        await AccessLogApp(refuse)(scope, None, ignore)  # type: ignore[arg-type]
    [line] = lines
    expected = {"tenant": "team-a", "key_id": key_id, "code": error.code, "status": status, "request_id": "r-1"}
    assert expected.items() <= line.items()
