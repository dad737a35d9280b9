"""The options of texts: each route that computes takes them by the same names, or refuses them by name."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from tests import plain_http
from tests.integration.gateway.gateway_cluster import GatewayProcess, error_of, null_vector
from tests.integration.gateway.job_client import JobClient

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(120)]

TEXTS = ["one", "two and more"]
OPTIONS: dict[str, Any] = {"dimensions": 16, "normalize": True}


def cut_vectors() -> NDArray[np.float32]:
    """Returns the null model's vectors of TEXTS with OPTIONS."""
    vectors = np.array([np.frombuffer(null_vector(text), dtype="<f4")[:16] for text in TEXTS])
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def post(gateway: GatewayProcess, route: str, body: object, **headers: str) -> httpx.Response:
    """Posts a body."""
    return plain_http.post(gateway.url + route, json=body, headers=headers, timeout=60)


def rows_of(client: JobClient, answer: httpx.Response) -> NDArray[np.float32]:
    """Returns the vectors of the job in an answer, once it has ended."""
    assert answer.status_code == 202, answer.text
    new_job = answer.json()
    assert client.wait_until_ended(new_job)["status"] == "done"
    return np.array([np.frombuffer(each, dtype="<f4") for each in client.vectors(new_job)])


@pytest.mark.parametrize("route", ["/embed", "/batch_embed"])
def test_the_native_routes_take_options(served: GatewayProcess, route: str) -> None:
    """/embed and /batch_embed give the vectors that the options describe, at once and as a job."""
    body = {"texts": TEXTS, **OPTIONS}
    answer = post(served, route, body)
    assert answer.status_code == 200, answer.text
    assert np.abs(np.array(answer.json()["embeddings"]) - cut_vectors()).max() <= 1e-6
    client = JobClient(served)
    rows = rows_of(client, post(served, route, body, prefer="respond-async"))
    assert np.abs(rows - cut_vectors()).max() <= 1e-6


def test_jobs_take_options(served: GatewayProcess) -> None:
    """A JSON document has the options in its fields, and a body of lines in the query of the request."""
    client = JobClient(served)
    for answer in (client.post({"texts": TEXTS, **OPTIONS}), client.post_lines(TEXTS, query=OPTIONS)):
        assert np.abs(rows_of(client, answer) - cut_vectors()).max() <= 1e-6


def test_an_option_that_the_model_refuses_is_an_error(served: GatewayProcess) -> None:
    """A prompt that the model does not have fails a request, and a job at once: it is never left out."""
    for route in ("/embed", "/batch_embed"):
        refused = post(served, route, {"texts": TEXTS, "prompt_name": "document"})
        assert (refused.status_code, "prompt_name" in error_of(refused)["message"]) == (400, True)
    client = JobClient(served)
    too_many = post(served, "/jobs", {"texts": TEXTS, "dimensions": 10_000})
    assert (too_many.status_code, error_of(too_many)["message"]) == (
        400,
        "dimensions: the vectors of this model have 384.",
    )
    fields = {"prompt_name": "document"}
    for refused in (client.post({"texts": TEXTS, **fields}), client.post_lines(TEXTS, query=fields)):
        assert refused.status_code == 400
        assert error_of(refused)["message"].startswith("prompt_name: this model has no such prompt; it has ")


def test_an_empty_prompt_name_is_accepted_by_every_model(served: GatewayProcess) -> None:
    """It means no prompt: in requests, in jobs, and in the query of a job of lines."""
    client, fields = JobClient(served), {"prompt_name": "", "dimensions": 16}
    assert np.shape(post(served, "/embed", {"texts": TEXTS, **fields}).json()["embeddings"]) == (len(TEXTS), 16)
    for answer in (client.post({"texts": TEXTS, **fields}), client.post_lines(TEXTS, query=fields)):
        assert rows_of(client, answer).shape == (len(TEXTS), 16)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"dimension": 8}, "dimension: there is no such parameter; did you mean dimensions?"),
        ({"dimensions": "eight"}, "dimensions: "),
        ({"dimensions": 0}, "dimensions: "),
        ({"truncate": "maybe"}, "truncate: "),
        ({"model": "minilm"}, "model: with a body of lines, send the header X-Model."),
        ({"priority": "bulk"}, "priority: with a body of lines, send the header X-Priority."),
        ({"a b": 1}, "no such parameter; this route takes prompt_name"),
        ({"inputs": "a"}, "inputs: there is no such parameter; this route takes prompt_name"),
    ],
)
def test_a_wrong_query_is_refused(served: GatewayProcess, query: dict[str, object], message: str) -> None:
    """An unknown parameter of the query, or one with a wrong value, gets a 400 that names it."""
    refused = JobClient(served).post_lines(TEXTS, query=query)
    assert refused.status_code == 400
    assert message in error_of(refused)["message"]


def test_a_query_beside_a_document_is_refused(served: GatewayProcess) -> None:
    """Otherwise options that a client sends in the wrong place would have no effect."""
    refused = post(served, "/jobs?dimensions=8", {"texts": TEXTS})
    assert (refused.status_code, "dimensions: send options in the body" in refused.text) == (400, True)


@pytest.mark.parametrize("route", ["/embed", "/batch_embed", "/jobs"])
def test_an_unknown_field_is_refused(served: GatewayProcess, route: str) -> None:
    """A field that a native route or a job does not have gets a 400 that names it and the nearest one."""
    refused = post(served, route, {"texts": TEXTS, "prompt": "document"})
    assert refused.status_code == 400
    assert "prompt: there is no such field; did you mean prompt_name?" in error_of(refused)["message"]


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("/embed", {"inputs": TEXTS, "prompt": "document"}),
        ("/", {"inputs": TEXTS, "prompt": "document"}),
        ("/v1/embeddings", {"input": TEXTS, "model": "null", "prompt": "document"}),
    ],
)
def test_other_apis_ignore_unknown_fields(served: GatewayProcess, route: str, body: object) -> None:
    """Clients of OpenAI and TEI may send fields of other servers."""
    assert post(served, route, body).status_code == 200


@pytest.mark.parametrize("content_type", ["application/json", "application/x-ndjson"])
def test_a_time_limit_beside_a_job_is_refused(served: GatewayProcess, content_type: str) -> None:
    """The header X-Timeout-Ms is a 400, as the field `timeout_ms` is, and is not ignored."""
    headers = {"content-type": content_type, "x-timeout-ms": "1000"}
    refused = plain_http.post(f"{served.url}/jobs", content=b'{"text": "a"}', headers=headers)
    assert (refused.status_code, error_of(refused)["code"]) == (400, "invalid_request")
    assert error_of(refused)["message"].startswith("X-Timeout-Ms: leave it out")
