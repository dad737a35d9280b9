"""Parses what a connection receives: each head within its limits, and requests for other protocols in this one."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import unquote

from httptools import HttpParserError, HttpParserUpgrade, parse_url
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.http.answer_cycle import EXTENSIONS, AnswerCycle
from api.http.early_error import log_fault
from api.http.upgrade import head_without_upgrade
from shared.errors import HeadTooLargeError, InvalidRequestError, RedbatchError, UrlTooLongError

if TYPE_CHECKING:
    from api.settings_groups import HeadLimits

_USUAL_URL = re.compile(rb"/[a-z0-9_/-]*")


class ParsingProtocol(HttpToolsProtocol):
    """uvicorn's protocol, but heads over their limits are not read: `end_reading` is called, as for what is not HTTP.

    Attributes:
        is_ended: whether nothing more is parsed.

    Args:
        args: uvicorn's.
        head_limits: of each request; the trailer of a chunked body has the same bounds, its fields together with those
            of the head.
        kwargs: uvicorn's.
    """

    cycle: AnswerCycle

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - uvicorn's
        head_limits: HeadLimits,
        **kwargs: Any,  # noqa: ANN401 - uvicorn's
    ) -> None:
        super().__init__(*args, **kwargs)
        self._limits = head_limits
        self._head_bytes = 0  # received since a head or a message was complete, or since the last part of a body
        self._in_head = False  # of a request, of which a part has arrived
        self._behind_bytes = 0  # at most this much of that head came in the read in which a message was complete
        self._in_body, self._num_trailer_fields = False, 0  # between the head of a request and the end of its body
        self._error: RedbatchError | None = None  # which stops the parser
        self.is_ended = False

    def end_reading(self, error: RedbatchError | None) -> None:
        """Refuses what has arrived, with an error, or because it is not HTTP. Sets `is_ended`."""
        raise NotImplementedError

    def drop_received(self, num_bytes: int) -> None:
        """A number of bytes have arrived after that."""
        raise NotImplementedError

    def count_heads(self) -> None:
        """A read is parsed: the size of the heads in memory may be another."""
        raise NotImplementedError

    @property
    def unfinished_bytes(self) -> int:
        """Of the head, or of the end of a body, that has not arrived completely."""
        return self._behind_bytes + self._head_bytes

    def drop_unfinished(self) -> None:
        """Drops the head or the body that has not arrived completely; nothing more is parsed."""
        self.parser = self.scope = None  # type: ignore[assignment]  # as uvicorn does: they hold parts of the head
        self.url, self.headers = b"", []
        self._end_head()
        self._in_body = False

    def _end_head(self) -> None:
        self._in_head, self._behind_bytes, self._head_bytes = False, 0, 0

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived. Those of an unfinished head are counted, whatever the parser has made of them."""
        self._head_bytes += len(data)
        if self.is_ended or self._head_bytes > self._limits.max_bytes:
            self._head_bytes -= len(data)
            self._receive_in_pieces(data)
        else:
            self._parse(data)
        self.count_heads()

    def _receive_in_pieces(self, data: bytes) -> None:
        """Parses up to the maximum of a head at a time, since only the parser knows whether it is one or a body."""
        rest = memoryview(data)
        while rest and not self.is_ended and not self.transport.is_closing():
            room = self._limits.max_bytes - self._head_bytes
            if room <= 0:
                message = f"The head of a request may have at most {self._limits.max_bytes} bytes (max_head_bytes)."
                self.end_reading(HeadTooLargeError(message))
            else:
                piece, rest = rest[:room], rest[room:]
                self._head_bytes += len(piece)
                self._parse(piece)
        if self.is_ended:
            self.drop_received(len(rest))

    def _parse(self, data: bytes | memoryview) -> None:
        """Does what uvicorn's `data_received` does, but serves a request for another protocol in this one.

        The parser takes its head for the end of HTTP: what follows would be lost, or a body be read as a request. So
        the head is parsed again without the field Upgrade.
        """
        num_bytes = len(data)
        while True:
            try:
                self.parser.feed_data(data)
            except HttpParserUpgrade as upgrade:
                head = head_without_upgrade(self.parser, self.url, self.headers)
                data = head + bytes(data[upgrade.args[0] :])
            except HttpParserError as error:
                log_fault(error)
                refused, self._error = self._error, None
                # The frames of its traceback refer to this connection: a reference cycle.
                self.end_reading(None if refused is None else refused.with_traceback(None))
                return
            else:
                break
        if self._in_head and not self._head_bytes:  # it began behind a message: only the parser knows where
            self._behind_bytes = num_bytes

    def stop_parsing(self, error: RedbatchError) -> NoReturn:
        """Stops the parser: `end_reading` is called with the error."""
        self._error = error
        raise error

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head = True
        self._unset_keepalive_if_required()
        self._in_body, self._num_trailer_fields = False, 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the URL has arrived."""
        self.url += url
        if len(self.url) > self._limits.max_url_bytes:
            error = UrlTooLongError(f"A URL may have at most {self._limits.max_url_bytes} bytes (max_url_bytes).")
            self.stop_parsing(error)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header field has arrived. Does what uvicorn's does: a call of that for each field takes as long as both."""
        if len(self.headers) + self._num_trailer_fields >= self._limits.max_fields:
            message = f"A request may have at most {self._limits.max_fields} header fields (max_head_fields)."
            self.stop_parsing(HeadTooLargeError(message))
        if self._in_body:  # fields of a trailer are no headers (RFC 9110, 6.5.1): nothing here reads them
            self._num_trailer_fields += 1
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value.rstrip(b"\t ")))  # the parser leaves tabs there, which are no part of it

    def on_headers_complete(self) -> None:
        """A head has arrived: a request begins."""
        self._end_head()
        self._complete_scope()
        self._begin_request()
        self._in_body = True

    def _complete_scope(self) -> None:
        """Does what uvicorn's `on_headers_complete` does, without a look at the URL's parts if it is a usual one.

        The prefix of a proxy is that of RootPathApp, not uvicorn's.
        """
        scope, url = self.scope, self.url
        scope["method"] = self.parser.get_method().decode("ascii")
        scope["http_version"] = self.parser.get_http_version()
        if scope["method"] != "HEAD":
            scope["extensions"] = EXTENSIONS
        if _USUAL_URL.fullmatch(url):
            scope["path"], scope["raw_path"], scope["query_string"] = url.decode("ascii"), url, b""
        else:
            parsed = parse_url(url)
            scope["path"] = unquote(parsed.path.decode("ascii"))
            scope["raw_path"], scope["query_string"] = parsed.path, parsed.query or b""

    def _begin_request(self) -> None:
        """Begins the request whose head is complete, or lets it wait behind others.

        Does what uvicorn's `on_headers_complete` does, without its `limit_concurrency`, which is not set, and without
        WebSockets, of which there are none.
        """
        previous = self.cycle
        self.cycle = AnswerCycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=self.scope["http_version"] != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        if previous is None or previous.response_complete:  # type: ignore[redundant-expr]  # None until then
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def on_body(self, body: bytes) -> None:
        """A part of a body has arrived. Does what uvicorn's does: a request for another protocol has no body here."""
        self._head_bytes = 0
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.body += body
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            cycle.message_event.set()
        else:  # the answer came before the end of the body, and the connection is not idle
            self._unset_keepalive_if_required()

    def on_message_complete(self) -> None:
        """A request has arrived with its body. Does what uvicorn's does."""
        self._head_bytes, self._in_body = 0, False
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.more_body = False
            cycle.message_event.set()

    def is_for_other_protocol(self) -> bool:
        """Whether the head that has arrived asks for another protocol, so that it is parsed again.

        Raises:
            InvalidRequestError: it is none of HTTP, which stops the parser.
        """
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise InvalidRequestError("CONNECT: there is no tunnel here.")
            return True
        if self.url[:1] != b"/" and parse_url(self.url).path is None:
            raise InvalidRequestError("The URL has no path.")
        return False
