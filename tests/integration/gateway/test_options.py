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
        ({"a b": 1}, "no such parameter; this route takes input_type"),
        ({"inputs": "a"}, "inputs: there is no such parameter; this route takes input_type"),
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


NATIVE = ("/embed", "/batch_embed")


def test_vectors_of_whole_numbers_and_bits(served: GatewayProcess) -> None:
    """In the API's own words on each route: those of the vectors that the same route returns as float32."""
    vectors = np.array(post(served, "/embed", {"texts": TEXTS, "normalize": True}).json()["embeddings"])
    bits = np.packbits(vectors > 0, axis=1).tolist()
    for route in NATIVE:
        answer = post(served, route, {"texts": TEXTS, "output_dtype": "ubinary"})
        assert (answer.status_code, answer.json()) == (200, {"embeddings": bits})
    openai = {"model": "null", "input": TEXTS}
    for route, fields in (("/v1/embeddings", {"output_dtype": "int8"}), ("/embeddings", {"embedding_type": "int8"})):
        rows = [each["embedding"] for each in post(served, route, openai | fields).json()["data"]]
        assert np.abs(np.array(rows) * (4 / np.sqrt(384) / 127) - vectors).max() <= 4 / np.sqrt(384) / 254 + 1e-6
    several = post(served, "/v1/embeddings", openai | {"embedding_type": ["ubinary", "float"]}).json()["data"]
    assert [each["embedding"]["ubinary"] for each in several] == bits
    assert np.abs(np.array([each["embedding"]["float"] for each in several]) - vectors).max() <= 1e-6
    cohere = {"model": "null", "texts": TEXTS, "input_type": "search_query", "embedding_types": ["float", "ubinary"]}
    answer = post(served, "/v2/embed", cohere)
    assert (answer.status_code, answer.json()["embeddings"]["ubinary"]) == (200, bits)


def test_number_formats_that_cannot_be(served: GatewayProcess) -> None:
    """Whole numbers of vectors of any length, bits that make no whole bytes, and either in a job."""
    for fields, message in (
        ({"output_dtype": "int8", "normalize": False}, "int8 and uint8 are for vectors of length 1"),
        ({"output_dtype": "binary", "dimensions": 12}, "set the dimensions to a multiple of 8"),
        ({"output_dtype": "int4"}, "output_dtype: "),
    ):
        refused = post(served, "/embed", {"texts": TEXTS, **fields})
        assert (refused.status_code, message in error_of(refused)["message"]) == (400, True), refused.text
    refused = post(served, "/embed", {"texts": TEXTS, "output_dtype": "int8"}, prefer="respond-async")
    assert (refused.status_code, "A job has float32" in error_of(refused)["message"]) == (400, True)
    cohere = {"model": "null", "texts": TEXTS, "input_type": "search_query", "embedding_types": ["base64"]}
    refused = post(served, "/v2/embed", cohere, prefer="respond-async")
    assert (refused.status_code, "A job has float32" in refused.json()["message"]) == (400, True)
    refused = post(served, "/jobs", {"texts": TEXTS, "output_dtype": "int8"})
    assert (refused.status_code, "output_dtype: there is no such field" in error_of(refused)["message"]) == (400, True)


def test_an_input_type_that_the_model_has_no_prompt_for(served: GatewayProcess) -> None:
    """Each route refuses it, and none repeats it; a model without prompts reads queries and documents alike."""
    client = JobClient(served)
    similar = {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}
    for kind, status in (("clustering", 400), ("search_query", 200)):
        answers = [
            *(post(served, route, {"texts": TEXTS, name: kind}) for route in NATIVE for name in ("input_type", "task")),
            post(served, "/v1/embeddings", {"model": "null", "input": TEXTS, "input_type": kind}),
            post(served, "/v1/embeddings", {"model": "null", "input": TEXTS, "task": kind}),
            post(served, "/v2/embed", {"model": "null", "texts": TEXTS, "input_type": kind}),
            post(served, "/v1/embed", {"texts": TEXTS, "task": kind}),
            *(post(served, route, {"inputs": TEXTS, "input_type": kind}) for route in ("/embed", "/embed_all", "/")),
            post(served, "/similarity", {"inputs": similar, "parameters": {"task": kind}}),
        ]
        statuses = [each.status_code for each in answers]
        tei = 422 if status == 400 else status  # for each field that is invalid
        assert statuses == [status] * (len(answers) - 4) + [tei] * 4
        if status == 400:
            assert all("input_type: this model has no prompt for it; it has none." in each.text for each in answers)
    refused = (
        client.post({"texts": TEXTS, "input_type": "clustering"}),
        client.post({"texts": TEXTS, "task": "clustering"}),
        client.post_lines(TEXTS, query={"input_type": "clustering"}),
        post(served, "/embed", {"texts": TEXTS, "input_type": "query", "prompt_name": ""}),
    )
    assert [each.status_code for each in refused] == [400] * 4
