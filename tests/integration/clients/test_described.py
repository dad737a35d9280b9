"""The OpenAPI page against the server: whatever it lets a client send is answered as it says."""

from __future__ import annotations

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
from api.jobs.schema import NDJSON_TYPES
from tests.integration.gateway.gateway_cluster import GatewayProcess

pytestmark = [pytest.mark.redis, pytest.mark.slow]

EXAMPLES = 40


@schemathesis.serializer(*NDJSON_TYPES)
def lines_of(_context: schemathesis.SerializationContext, value: object) -> bytes:
    """Returns a body of lines as it is sent: whatever text was made up for it."""
    return str(value).encode(errors="replace")


described = schemathesis.openapi.from_dict(description())


def no_fault(_context: CheckContext, response: schemathesis.Response, _case: schemathesis.Case[Any]) -> None:
    """A 500 is a fault of the server's; 503 and 504 may be what a client has asked for, with a deadline of 1 ms."""
    assert response.status_code != 500, response.text


CHECKS = [no_fault, status_code_conformance, content_type_conformance, response_schema_conformance]


@described.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.timeout(300)
def test_whatever_is_sent_is_answered_as_described(case: schemathesis.Case[Any], served: GatewayProcess) -> None:
    """Bodies as described and bodies that are not, any headers: no 500, no status that the page keeps silent about."""
    case.call_and_validate(base_url=served.url, checks=CHECKS, timeout=30)
