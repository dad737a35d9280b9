"""Jobs of pairs and of labels with simulated models, whose logits are known: results, refusals, quotas, and bounds."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest

from tests.integration.clients.test_rerank import logit, queue_of, score
from tests.integration.gateway.gateway_cluster import GatewayProcess, error_of
from tests.integration.gateway.job_client import JobClient

pytestmark = [pytest.mark.redis, pytest.mark.timeout(90)]

QUERIES = ("What is a pet?", "Ünïcödé", "What flies?")
TEXTS = [f"text {number}" for number in range(100)]


def run(client: JobClient, new_job: dict[str, Any], status: str = "done") -> dict[str, Any]:
    """Waits until a job has ended with a status, and returns it."""
    job = client.wait_until_ended(new_job)
    assert job["status"] == status, job
    return job


def results(client: JobClient, new_job: dict[str, Any], query: str = "") -> list[Any]:
    """Returns the scores of a job, from all pages."""
    found: list[Any] = []
    url: str | None = new_job["result_url"] + query
    while url is not None:
        page = client.get(url).json()
        assert page["offset"] == len(found)
        found += page["scores"]
        url = page["next_url"]
    return found


def test_a_job_has_the_score_of_each_document(gateway: GatewayProcess) -> None:
    """In the order of the documents, in pages, and as a file: after the activation, or logits for `raw_scores`."""
    client = JobClient(gateway)
    body = {"query": QUERIES[0], "documents": TEXTS, "model": queue_of(gateway)}
    new_job = client.job_of(client.post(body, idempotency_key="pairs"))
    assert client.job_of(client.post(body, idempotency_key="pairs"))["id"] == new_job["id"]
    other = client.post(body | {"query": QUERIES[1]}, idempotency_key="pairs")
    assert error_of(other)["code"] == "idempotency_key_reused"
    job = run(client, new_job)
    assert (job["op"], job["n"], job["done"], job["failed"]) == ("score", 100, 100, 0)
    scores, logits = [score(QUERIES[0], each) for each in TEXTS], [logit(QUERIES[0], each) for each in TEXTS]
    for query, expected in (("", scores), ("?limit=7", scores), ("?raw_scores=true&limit=7", logits)):
        assert results(client, new_job, query) == pytest.approx(expected, abs=1e-5)
    for query, expected in (("", scores), ("?raw_scores=true", logits)):
        file = client.get(new_job["result_url"] + query, accept="application/x-npy")
        assert np.load(io.BytesIO(file.content))[:, 0] == pytest.approx(expected, abs=1e-5)
    assert client.delete(new_job["status_url"]).json()["status"] == "deleted"


def test_each_line_may_have_another_query(gateway: GatewayProcess) -> None:
    """Also lines whose queries alternate; a pair with an invalid text fails alone, and an empty text is one."""
    client = JobClient(gateway, x_model=queue_of(gateway))
    pairs = [(QUERIES[number * number % 3], text) for number, text in enumerate([*TEXTS, ""])]
    pairs[10:12] = [("", "a"), ("a", "x" * 200_000)]
    new_job = client.job_of(client.post_lines([{"query": query, "text": text} for query, text in pairs]))
    job = run(client, new_job)
    assert [(each["index"], each["code"]) for each in job["errors"]] == [
        (10, "invalid_request"),
        (11, "too_large"),
    ]
    expected = [None if 10 <= index < 12 else score(*pair) for index, pair in enumerate(pairs)]
    found = results(client, new_job, "?limit=9")
    assert [each is None for each in found] == [each is None for each in expected]
    numbers = [(math.nan if each is None else each) for each in found]
    assert numbers == pytest.approx([math.nan if each is None else each for each in expected], abs=1e-5, nan_ok=True)
    file = client.get(new_job["result_url"], accept="application/x-npy")
    assert file.headers["x-failed-inputs"] == "2"
    assert np.load(io.BytesIO(file.content))[:, 0] == pytest.approx(numbers, abs=1e-5, nan_ok=True)


def test_the_texts_of_a_job_are_classified(gateway: GatewayProcess) -> None:
    """As on /classify: a row with the score of each label, whose names are in the page; or its logits."""
    client = JobClient(gateway, x_model=queue_of(gateway, "-labels"))
    for new_job in (client.job_of(client.post({"texts": TEXTS})), client.job_of(client.post_lines(TEXTS))):
        assert run(client, new_job)["op"] == "classify"
        page = client.get(new_job["result_url"]).json()
        assert page["labels"] == ["LABEL_0", "LABEL_1", "LABEL_2"]
        rows, logits = np.array(page["scores"]), np.array(results(client, new_job, "?raw_scores=true&limit=40"))
        assert rows.sum(axis=1) == pytest.approx(np.ones(100), abs=1e-5)
        powers = np.exp(logits)
        assert rows == pytest.approx(powers / powers.sum(axis=1, keepdims=True), abs=1e-5)
        file = client.get(new_job["result_url"], accept="application/x-npy")
        assert np.load(io.BytesIO(file.content)) == pytest.approx(rows, abs=1e-6)


@pytest.mark.parametrize(
    ("suffix", "content", "messages"),
    [
        ("-null", {"query": "a", "documents": ["b"]}, ["does not offer score"]),
        ("-labels", {"query": "a", "documents": ["b"]}, ["does not offer score"]),
        ("", {"texts": ["a"]}, ["does not offer embed"]),
        ("", {"inputs": [1]}, ["does not offer predict", '{"query": "...", "documents": [...]}']),
        ("-labels", {"texts": ["a"], "normalize": True}, ["normalize: a classifier has no such option"]),
        ("", {"query": "a", "documents": ["b"], "dimensions": 1}, ["dimensions: a reranker has no such option"]),
        ("", {"query": "", "documents": ["b", "c"]}, ["None of the inputs can run. The query is empty."]),
    ],
)
def test_a_job_that_the_model_cannot_run_is_refused(
    gateway: GatewayProcess, suffix: str, content: dict[str, Any], messages: list[str]
) -> None:
    """At once, in one document as in lines, with what to do: another queue that can, or the form of its jobs."""
    client = JobClient(gateway, x_model=queue_of(gateway, suffix))
    kind = next(iter(content))
    options = {name: value for name, value in content.items() if name in ("normalize", "dimensions")}
    lines: list[Any] = {
        "query": [{"query": content["query"], "text": each} for each in content.get("documents", ())]
        if kind == "query"
        else [],
        "texts": ["a"],
        "inputs": [{"input": 1}],
    }[kind]
    for answer in (client.post(content), client.post_lines(lines, query=options)):
        assert answer.status_code == 400, answer.text
        assert [each for each in messages if each not in error_of(answer)["message"]] == [], answer.text


def test_the_scores_of_vectors_are_logits_or_nothing(gateway: GatewayProcess) -> None:
    """`raw_scores` of a job of vectors is refused, and so is a value that is no truth value."""
    client = JobClient(gateway, x_model=queue_of(gateway, "-null"))
    new_job = client.job_of(client.post({"text": "a"}))
    run(client, new_job)
    for query, message in (("true", "the results of embed are no scores"), ("1", "send true or false")):
        answer = client.get(f"{new_job['result_url']}?raw_scores={query}")
        assert (answer.status_code, message in error_of(answer)["message"]) == (400, True)
