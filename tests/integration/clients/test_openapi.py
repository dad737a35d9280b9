"""The OpenAPI document against the server: any request that it allows is answered as it describes."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import CheckContext
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api.app import description
from api.jobs import results
from api.jobs.schema import NDJSON_TYPES
from api.settings import GatewaySettings
from tests.integration.clients.test_rerank import queue_of
from tests.integration.gateway.gateway_cluster import GatewayProcess

pytestmark = [pytest.mark.redis, pytest.mark.slow]

EXAMPLES, FEW_EXAMPLES = 25, 4
MAX_URL_BYTES = GatewaySettings().max_url_bytes


@schemathesis.serializer(*NDJSON_TYPES)
def lines_of(_context: schemathesis.SerializationContext, value: object) -> bytes:
    """Returns the body of lines for a generated value, as text."""
    return str(value).encode(errors="replace")


@schemathesis.serializer(results.NPY)
def bytes_of(_context: schemathesis.SerializationContext, value: object) -> bytes:
    """Returns the body of a generated value of format `binary`; any other value as text."""
    data = getattr(value, "data", None)
    return data if isinstance(data, bytes) else str(value).encode(errors="replace")


described = schemathesis.openapi.from_dict(description())
scoring = described.include(path_regex=r"^/(rerank|score|classify|predict|invocations)$", method="POST")
"""The routes that rank, score and classify, without their other paths."""


def no_server_error(_context: CheckContext, response: schemathesis.Response, _case: schemathesis.Case[Any]) -> None:
    """Fails on a 500, which is a fault of the server; a 503 or 504 may result from a deadline of 1 ms."""
    assert response.status_code != 500, response.text


def documented_status(context: CheckContext, response: schemathesis.Response, case: schemathesis.Case[Any]) -> None:
    """Fails on a status that the document does not list, but for a URL over the limit, which no route gets to see."""
    if response.status_code != HTTPStatus.REQUEST_URI_TOO_LONG or len(str(response.request.url)) <= MAX_URL_BYTES:
        status_code_conformance(context, response, case)


CHECKS = [no_server_error, documented_status, content_type_conformance, response_schema_conformance]


@described.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.timeout(300)
def test_any_request_is_answered_as_described(case: schemathesis.Case[Any], served: GatewayProcess) -> None:
    """Valid and invalid bodies with any headers get no 500, and no status that the document does not list."""
    case.call_and_validate(base_url=served.url, checks=CHECKS, timeout=30)


@scoring.parametrize()
@settings(max_examples=FEW_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.timeout(300)
def test_any_request_to_a_model_that_scores(case: schemathesis.Case[Any], gateway: GatewayProcess) -> None:
    """The same of a reranker, the default model here, and of a classifier, if the request names no other model."""
    labels = "-labels" if case.path.endswith(("/classify", "/predict", "/invocations")) else ""
    named = {"X-Model": queue_of(gateway, labels)} | dict(case.headers or {})
    case.call_and_validate(base_url=gateway.url, checks=CHECKS, timeout=30, headers=named)
