"""Answers that are read from Redis while they are sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

import structlog
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect

from api.http.client_connection import CLIENT, ClientConnection
from shared.errors import RedbatchError

if TYPE_CHECKING:
    from starlette.types import Scope

log = structlog.get_logger()


async def streamed_answer(
    scope: Scope, parts: AsyncIterator[bytes], headers: Mapping[str, str], media_type: str
) -> StreamingResponse:
    """Returns the answer whose body are these parts, of which there is one at least.

    The first one is read here, so that its error can still be the answer. A later error closes the connection: the
    client sees an answer that is shorter than announced.

    Raises:
        RedbatchError: there is no first part.
    """
    first = [await anext(parts)]
    return StreamingResponse(_join(scope, first, parts), 200, headers, media_type)


async def _join(scope: Scope, first: list[bytes], rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yields all parts. No variable keeps a part while the next one is awaited: that may take minutes."""
    yield first.pop()
    client: ClientConnection = scope["state"][CLIENT]
    while not client.gone:
        try:
            part = [await anext(rest)]
        except (StopAsyncIteration, ClientDisconnect):
            return
        except RedbatchError as error:
            log.info("answer cut short", code=error.code, message=error.log_message)
            client.abort()
            await client.wait_until_gone()
            return
        yield part.pop()
