"""The base class of all dialects: a client API as the gateway sees it. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from api.dialects.headers import timing_headers
from api.dialects.request import MODEL_HEADER
from api.errors import error_body, status_of
from shared.errors import RedbatchError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from api.dialects.request import InferenceRequest, InferenceResult
    from api.settings_groups import RequestLimits


class DeviceInfo(Protocol):
    """The facts about the workers of a model that a dialect may report."""

    def compute_type(self, model: str | None) -> str:
        """Returns the kind of device that the workers compute on, as TEI names it."""


class BaseDialect(ABC):
    """The request and response formats of one client API, with the defaults of Redbatch's own API.

    Attributes:
        route: the path that clients call; also the label of these requests in metrics.
        body_model: the fields of a body.
        body_setting: the setting that bounds the size of a body.
        binary_types: the media types of bodies that are not JSON.
        strict_query: whether parameters of the query are refused: options belong in the body.
        reports_model: whether the answer depends on the request's model.
        has_stamp: whether the answer has an id.
        becomes_jobs: whether a client may prefer a job to an answer; otherwise that preference is ignored.
    """

    route: str
    body_model: type[BaseModel]
    body_setting = "max_body_bytes"
    binary_types: frozenset[str] = frozenset()
    strict_query = False
    reports_model = False
    has_stamp = False
    becomes_jobs = True

    def __init__(self, route: str | None = None) -> None:
        if route is not None:
            self.route = route

    def for_body(self, body: bytes) -> BaseDialect:  # noqa: ARG002 - for a route that takes several dialects
        """Returns the dialect of a body. Raises InvalidRequestError: the body mixes two."""
        return self

    def for_ops(self, body: bytes) -> Sequence[tuple[str, BaseDialect]]:  # noqa: ARG002 - for a route of several kinds of models
        """Returns operations, each with the dialect of a body for a model that offers it: the first one counts.

        Other models have this dialect.
        """
        return ()

    def model_of(self, body: bytes, headers: Mapping[str, str]) -> str | None:  # noqa: ARG002 - a body may name it
        """Returns the model that a request names, before it is parsed. Raises RequestError: the body is malformed."""
        return headers.get(MODEL_HEADER)

    def max_bytes(self, limits: RequestLimits) -> int:
        """Returns the maximum size of a body, which `body_setting` sets."""
        return int(getattr(limits, self.body_setting))

    @abstractmethod
    def parse(self, body: bytes, headers: Mapping[str, str], limits: RequestLimits) -> InferenceRequest:
        """Returns the request in a body; fields that the body lacks come from the headers.

        Raises:
            InvalidRequestError: the body is malformed, or has no inputs.
            TooLargeError: it exceeds the limits.
        """

    @abstractmethod
    def encode_result(self, request: InferenceRequest, result: InferenceResult) -> bytes:
        """Returns the body of an answer."""

    def headers(
        self,
        workers: DeviceInfo,  # noqa: ARG002 - for dialects that report the device
        request: InferenceRequest,  # noqa: ARG002 - for dialects that report its size
        result: InferenceResult,
        took_s: float,  # noqa: ARG002 - for dialects that report the whole time
    ) -> dict[str, str]:
        """Returns the headers of an answer. `took_s` is the time since the request arrived (s)."""
        return timing_headers(result)

    def encode_error(self, error: RedbatchError, request_id: str) -> tuple[int, bytes]:
        """Returns status and body of an answer with an error."""
        return status_of(error), error_body(error.code, error.message, request_id)
