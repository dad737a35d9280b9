"""Actions of operators: each needs an API key of the scope `admin`, on any gateway, and is one line in the log.

The key must be in the header Authorization, which no other site can make a browser send: there are no cookies, so a
forged form or link does nothing. A line has neither texts nor keys, and no text that a client chose.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from fastapi import Request, Response

from api.admin_route import check_query, native_answer
from api.http.body import BodyUnreadError
from api.http.client_connection import client_address
from api.http.protocol import QUEUE
from api.http.request_log import ADDRESS, TENANT
from api.tenants import Tenant, tenant_from_key
from shared.dead_letter_ids import is_letter_id
from shared.errors import ForbiddenError, RedbatchError, UnauthorizedError, UnavailableError
from shared.job_ids import split_public_id
from shared.process.limited_log import LimitedLog
from shared.redis_errors import NotPermittedError

if TYPE_CHECKING:
    from api.state import State

audit_log = structlog.wrap_logger(None, wrapper_class=structlog.BoundLogger)
"""Writes at any `log_level`: which actions took place is not a matter of how much a log tells."""

limited_log = LimitedLog()

NEEDS_KEY = (
    "Actions need an API key of the scope admin, also where this gateway takes requests without one: create one with "
    "`redbatch keys create --scope admin`, and send it as Authorization: Bearer <key>."
)
NOT_PERMITTED = (
    "Redis does not permit this to the user of the gateway: give it the rights of this version (docs/redis.md, Users), "
    "or use `redbatch dead` as the user admin."
)
_JOB_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(slots=True)
class ActionRecord:
    """What the log says of an action: which, on what, and what came of it, in words that no client chose."""

    action: str
    queue: str = ""
    target: str = ""
    outcome: str = "interrupted"

    @classmethod
    def of(cls, action: str, request: Request, state: State) -> ActionRecord:
        """Returns the record of a request; what is no id, or of a queue that is not served, is left out."""
        target: str = request.path_params["id"]
        if is_letter_id(target):
            queue = request.query_params.get("queue", "")
        else:
            queue, _, job_id = split_public_id(target)
            target = target if _JOB_ID.fullmatch(job_id) else ""
        if state.queues.of_name(queue) is None:
            return cls(action, target=target if is_letter_id(target) else "")
        return cls(action, queue, target)

    def write(self, request: Request, key_id: str, *, is_refused: bool) -> None:
        """Writes the line; of refused actions of one kind, the first and then how many: anybody can send these."""
        address = client_address(request.scope)
        target = {"queue": self.queue, "target": self.target, "client": address if ADDRESS.fullmatch(address) else ""}
        kind = {"action": self.action, "outcome": self.outcome, "key_id": key_id}
        if is_refused:
            limited_log.write(logging.WARNING, "admin action", lambda: target, **kind)
        else:
            audit_log.info("admin action", **kind, **target)


ActionRoute = Callable[["Request", "State", ActionRecord], Awaitable[Response]]


def admin_action(action: str, *parameters: str) -> Callable[[ActionRoute], Callable[[Request], Awaitable[Response]]]:
    """Decorates the route of an action with these query parameters. It sets the outcome of its record, for the log."""

    def decorate(route: ActionRoute) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return await native_answer(request, lambda _: _act(request, route, action, parameters))

        answer.__name__, answer.__doc__ = route.__name__, route.__doc__
        return answer

    return decorate


async def _act(request: Request, route: ActionRoute, action: str, parameters: tuple[str, ...]) -> Response:
    state: State = request.app.state.redbatch
    record = ActionRecord.of(action, request, state)
    if record.queue:
        request.scope["state"][QUEUE] = record.queue
    try:
        tenant = await authenticate_action(request, state)
    except RedbatchError as error:
        record.outcome = error.code
        record.write(request, error.key_id, is_refused=True)
        raise BodyUnreadError(error) from None
    request.scope["state"][TENANT] = tenant
    try:
        check_query(request, parameters)
        return await route(request, state, record)
    except NotPermittedError:
        record.outcome = "not permitted by Redis"
        raise UnavailableError(NOT_PERMITTED) from None
    except RedbatchError as error:
        record.outcome = error.code
        raise
    except Exception:
        record.outcome = "internal"
        raise
    finally:
        record.write(request, tenant.key_id, is_refused=False)


async def authenticate_action(request: Request, state: State) -> Tenant:
    """Returns the tenant of the key of an action.

    Raises:
        UnauthorizedError: there is no key, and this gateway requires keys.
        ForbiddenError: there is none in the header Authorization, or it lacks the scope.
        RedbatchError: the key is not accepted: see `ApiKeyAuthenticator.admit`.
    """
    if state.action_authenticator is None:
        raise ForbiddenError(NEEDS_KEY)
    if not _is_bearer(request):
        has_other = state.authenticator is None or "x-api-key" in request.headers
        raise ForbiddenError(NEEDS_KEY) if has_other else UnauthorizedError(NEEDS_KEY)
    authorization = request.headers.get("authorization", "")
    address = client_address(request.scope)
    key = await state.action_authenticator.admit({"authorization": authorization}, address, "admin")
    return tenant_from_key(key.key_id, key.tenant, key.quota, state.tenants)


async def may_act(request: Request, state: State) -> bool:
    """Whether a request has a key for actions; False without any. Raises as `authenticate_action` does for others."""
    if not _is_bearer(request):  # a proxy in front may take a password in the same header
        return False
    await authenticate_action(request, state)
    return True


def _is_bearer(request: Request) -> bool:
    return request.headers.get("authorization", "")[:7].lower() == "bearer "
