"""How clients of one kind ask, and how they are answered: what the gateway wants of each API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from shared.errors import RedbatchError

if TYPE_CHECKING:
    from api.dialects.request import InferenceRequest, InferenceResult
    from api.settings import GatewaySettings


class DeviceInfo(Protocol):
    """What a dialect may report of the workers of a model."""

    def compute_type(self, model: str | None) -> str:
        """Returns what they compute on, in TEI's words."""


class Dialect(Protocol):
    """How clients of one kind ask, and how they are answered. `route` names them in metrics."""

    @property
    def route(self) -> str:
        """Where they ask."""

    def for_body(self, body: bytes) -> Dialect:
        """Returns whose words this body is in, where some may ask in others."""

    def max_bytes(self, settings: GatewaySettings) -> int:
        """Returns how long a body may be."""

    def parse(self, body: bytes, headers: Mapping[str, str], settings: GatewaySettings) -> InferenceRequest:
        """Returns what a body asks for, and where it is silent, the headers. Raises RequestError."""

    def answer(self, asked: InferenceRequest, answered: InferenceResult) -> bytes:
        """Returns the body of an answer with what was asked for."""

    def headers(
        self, workers: DeviceInfo, asked: InferenceRequest, answered: InferenceResult, took_s: float
    ) -> dict[str, str]:
        """Returns what is told beside it."""

    def refusal(self, error: RedbatchError, request_id: str) -> tuple[int, bytes]:
        """Returns status and body of an answer with an error."""
