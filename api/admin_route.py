"""Routes for keys of the scope `admin`: authentication, and errors in the native format."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from fastapi import Request, Response

from api.dialects.native import Native
from api.dialects.strict_body import unknown_parameter_error
from api.http.client_connection import client_address
from api.http.error_responses import answer_error
from api.http.request_id import request_id_of
from api.http.request_log import TENANT

if TYPE_CHECKING:
    from api.state import State

NATIVE = Native()

AdminRoute = Callable[["Request", "State"], Awaitable[Response]]


def admin_route(*parameters: str) -> Callable[[AdminRoute], Callable[[Request], Awaitable[Response]]]:
    """Decorates a route with these query parameters: its request must have a key of the scope `admin`.

    A gateway that requires no keys admits requests without one: see `State.authenticate`. Errors that the route raises
    are answered in the native format. An answer is not to be kept by caches.
    """

    def decorate(route: AdminRoute) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            state: State = request.app.state.redbatch
            tenant = await state.authenticate(request.headers, client_address(request.scope), "admin")
            request.scope["state"][TENANT] = tenant
            check_query(request, parameters)
            return await route(request, state)

        async def answer(request: Request) -> Response:
            return await native_answer(request, respond)

        answer.__name__, answer.__doc__ = route.__name__, route.__doc__
        return answer

    return decorate


async def native_answer(request: Request, respond: Callable[[Request], Awaitable[Response]]) -> Response:
    """Returns what `respond` does, or its error in the native format; caches are not to keep the answer."""
    request_id = request_id_of(request.headers)
    try:
        response = await respond(request)
    except Exception as error:  # noqa: BLE001 - its message may quote the client
        return answer_error(error, request, NATIVE, request_id)
    response.headers.update({"x-request-id": request_id, "cache-control": "no-store"})
    return response


def check_query(request: Request, known: tuple[str, ...]) -> None:
    """Raises InvalidRequestError: there is another parameter."""
    for name in request.query_params:
        if name not in known:
            raise unknown_parameter_error(name, known)
