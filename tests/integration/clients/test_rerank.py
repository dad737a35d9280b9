"""The rerank routes with simulated models, whose logits are known: answers, headers, errors, and common behavior."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from huggingface_hub import InferenceClient

from shared.messages import Failure, Vectors
from shared.queue_connections import QueueConnections
from tests import plain_http
from tests.integration.clients.conftest import RERANKER, Guarded
from tests.integration.clients.error_cases import (
    ERROR_CASES,
    FAILED,
    FAILING,
    LATE,
    LIMITED,
    LONG,
    LONG_FOR_TEI,
    NO_KEY,
    NO_SCOPE,
    NOT_A_NUMBER,
    QUEUE,
    REQUEST_ID,
    TEXT_BODIES,
    ErrorCase,
    in_each_format,
    own,
    rerank,
)
from tests.integration.clients.fake_worker import NAN, TOO_LONG, FakeWorker, failure
from tests.integration.gateway.gateway_cluster import (
    GatewayCluster,
    GatewayProcess,
    error_of,
    log_lines,
    metric,
    null_vector,
)
from tests.openapi_examples import ANSWERS, BODIES, JSON, examples_of
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

PAGE = Path(__file__).parents[3] / "docs" / "api.md"
QUERY, TEXTS = "What is a pet?", ["a dog", "a car", "Ünïcödé", "a cat"]
MANY = [f"text {number}" for number in range(100)]


def logit(query: str, text: str) -> float:
    """Returns the logit of a pair by the simulated reranker."""
    return hashlib.sha256(f"{query}\0{text}".encode()).digest()[0] / 255 * 16 - 8


def score(query: str, text: str) -> float:
    """Returns the score of a pair by the simulated reranker."""
    return 1 / (1 + math.exp(-logit(query, text)))


def order(query: str, texts: list[str]) -> list[int]:
    """Returns the indices of texts, the best first."""
    return sorted(range(len(texts)), key=lambda index: (-logit(query, texts[index]), index))


def queue_of(gateway: GatewayProcess, suffix: str = "") -> str:
    """Returns the name of a queue of the fixture."""
    models = plain_http.get(f"{gateway.url}/v1/models").json()["data"]
    return str(min((each["id"] for each in models), key=len)) + suffix


def post(gateway: GatewayProcess, path: str, body: object, **headers: str) -> httpx.Response:
    """Posts a JSON body; `x_model` is the header X-Model."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return plain_http.post(f"{gateway.url}{path}", json=body, headers=named, timeout=60)


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/", "/invocations"])
def test_a_body_of_tei_gets_an_array(gateway: GatewayProcess, path: str) -> None:
    """Also of more texts than one entry holds, each with the score of its pair, and TEI's headers."""
    for texts in (TEXTS, MANY):
        answer = post(gateway, path, {"query": QUERY, "texts": texts, "return_text": True}, x_model=queue_of(gateway))
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert [each["index"] for each in found] == order(QUERY, texts)
        for each in found:
            text = texts[each["index"]]
            assert each == {"index": each["index"], "text": text, "score": pytest.approx(score(QUERY, text), abs=1e-6)}
        characters = len(QUERY) * len(texts) + sum(map(len, texts))
        assert answer.headers["x-compute-characters"] == str(characters)
        assert answer.headers["x-compute-type"] == "cpu"


@pytest.mark.parametrize("path", ["/rerank", "/", "/invocations"])
def test_a_body_of_tei_has_the_same_bound_on_each_route(gateway: GatewayProcess, path: str) -> None:
    """That of documents, which are longer than what is embedded."""
    texts = ["x" * 100_000] * 30
    answer = post(gateway, path, {"query": QUERY, "texts": texts, "top_n": 1}, x_model=queue_of(gateway))
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_a_body_with_documents_gets_an_object(gateway: GatewayProcess, path: str) -> None:
    """Its id is that of the request, and its model the queue if the request names none."""
    queue = queue_of(gateway)
    body: dict[str, Any] = {"query": QUERY, "documents": MANY, "top_n": 3, "model": queue}
    answer = post(gateway, path, body, x_request_id="request-7")
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["id"], answer.headers["x-request-id"]) == ("request-7", "request-7")
    assert [each["index"] for each in found["results"]] == order(QUERY, MANY)[:3]
    assert found["results"][0] == {
        "index": order(QUERY, MANY)[0],
        "relevance_score": pytest.approx(score(QUERY, MANY[order(QUERY, MANY)[0]]), abs=1e-6),
    }
    assert found["meta"]["billed_units"]["search_units"] == 1
    assert found["meta"]["tokens"]["input_tokens"] == len(MANY)


def cosine(first: str, second: str) -> float:
    """Returns the cosine of the vectors of two texts by the null model."""
    vectors = [np.frombuffer(null_vector(each), dtype="<f4").astype(float) for each in (first, second)]
    return float(vectors[0] @ vectors[1] / np.prod([np.linalg.norm(each) for each in vectors]))


def test_a_model_of_embeddings_ranks_by_cosine(gateway: GatewayProcess) -> None:
    """In each dialect, and each text is embedded once, however often it stands in pairs."""
    queue = f"{queue_of(gateway)}-null"
    texts = [*TEXTS, QUERY, TEXTS[0]]
    expected = [cosine(QUERY, text) for text in texts]
    best = sorted(range(len(texts)), key=lambda index: -expected[index])
    tei = post(gateway, "/rerank", {"query": QUERY, "texts": texts}, x_model=queue)
    assert tei.status_code == 200, tei.text
    assert int(tei.headers["x-compute-tokens"]) == len({QUERY, *texts})
    assert [each["score"] for each in tei.json()] == pytest.approx([expected[index] for index in best], abs=1e-6)
    assert (tei.json()[0]["index"], tei.json()[0]["score"]) == (4, pytest.approx(1, abs=1e-6))
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        answer = post(gateway, path, {"model": queue, "query": QUERY, "documents": texts, "top_n": 2})
        assert [each["index"] for each in answer.json()["results"]] == best[:2]
    pairs = post(gateway, "/score", {"model": queue, "text_1": ["a", "b", "a"], "text_2": ["b", "a", "a"]}).json()
    scores = [cosine("a", "b"), cosine("a", "b"), 1]
    assert [each["score"] for each in pairs["data"]] == pytest.approx(scores, abs=1e-6)
    assert pairs["usage"]["total_tokens"] == 2


def test_a_model_that_cannot_rank_is_refused_in_each_dialect(gateway: GatewayProcess) -> None:
    """At once, with what it offers and which queue ranks; and a reranker gives no vectors."""
    queue = queue_of(gateway)
    advice = f"The model of queue {queue}-labels does not offer score; these do: "  # and those of other tests
    tei = post(gateway, "/rerank", {"query": "q", "texts": ["a"]}, x_model=f"{queue}-labels")
    assert (tei.status_code, tei.json()["error_type"]) == (424, "Backend")
    assert tei.json()["error"].startswith(f"Backend error: model is not a re-ranker model. {advice}")
    for able in (queue, f"{queue}-null"):  # the latter by cosine
        assert re.search(rf" {able}[,.]", tei.json()["error"])
    body = {"query": "q", "documents": ["a"], "model": f"{queue}-labels"}
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        refused = post(gateway, path, body)
        assert (refused.status_code, refused.json()["message"][: len(advice)]) == (400, advice)
    native = gateway.embed({"text": "a", "model": queue})
    assert (native.status_code, error_of(native)["code"]) == (400, "unsupported_operation")
    assert re.search(rf"does not offer embed; these do: .*\b{queue}-null[,.]", error_of(native)["message"])
    tei = post(gateway, "/embed", {"inputs": "a"}, x_model=queue)
    assert (tei.status_code, tei.json()["error_type"]) == (424, "Backend")
    assert tei.json()["error"].startswith("Backend error: Model is not an embedding model. ")
    openai = post(gateway, "/v1/embeddings", {"input": "a", "model": queue})
    assert (openai.status_code, openai.json()["error"]["code"]) == (400, "unsupported_operation")
    job = post(gateway, "/jobs", {"texts": ["a"], "model": queue})
    assert (job.status_code, error_of(job)["code"]) == (400, "unsupported_operation")


def test_the_description_of_a_reranker(gateway: GatewayProcess) -> None:
    """As TEI reports it, with its labels."""
    queue = queue_of(gateway)
    info = plain_http.get(f"{gateway.url}/info", headers={"x-model": queue}).json()
    assert info["model_type"] == {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}}
    info = plain_http.get(f"{gateway.url}/info", headers={"x-model": f"{queue}-labels"}).json()
    names = ["LABEL_0", "LABEL_1", "LABEL_2"]
    assert info["model_type"] == {
        "classifier": {
            "id2label": {str(index): name for index, name in enumerate(names)},
            "label2id": {name: index for index, name in enumerate(names)},
        }
    }


def test_time_lane_limits_and_metrics_hold(gateway: GatewayProcess) -> None:
    """As for /embed: they belong to no route."""
    queue = queue_of(gateway)
    body = {"query": "q", "documents": ["a"], "model": queue}
    assert post(gateway, "/v1/rerank", body, x_timeout_ms="0").status_code == 400
    assert post(gateway, "/v1/rerank", body, x_priority="soon").status_code == 400
    assert post(gateway, "/v1/rerank", body | {"priority": 5}, prefer="respond-async").status_code == 200
    too_many = post(gateway, "/rerank", {"query": "q", "texts": ["a"] * 201}, x_model=queue)
    assert (too_many.status_code, too_many.json()["error_type"]) == (422, "Validation")
    assert too_many.json()["error"] == "batch size 201 > maximum allowed batch size 200"
    assert gateway.metric('redbatch_requests_total{route="/v1/rerank",status="200"}') >= 1
    lines = [each for each in log_lines(gateway.program) if each.get("route") == "/v1/rerank"]
    assert {each.get("status") for each in lines} >= {200, 400}


def test_the_examples_of_the_page_are_answered(gateway: GatewayProcess) -> None:
    """Each request that docs/api.md shows, with the keys of the answer that it shows."""
    section = PAGE.read_text(encoding="utf-8").partition("## Rerank\n")[2].partition("\n## ")[0]
    shown = re.findall(r"8080(/\S+) .*\\\n  -d '(.+)'\n# ([^`]+)```", section)
    assert [path for path, _, _ in shown] == [
        *("/rerank", "/v1/rerank", "/v1/rerank", "/v2/rerank", "/score", "/classify", "/predict"),
    ]
    for path, body, expected in shown:
        queue = queue_of(gateway) + ("-labels" if path in ("/classify", "/predict") else "")
        sent = json.loads(re.sub("my-[a-z]+|minilm", queue, body))
        answer = post(gateway, path, sent, x_model=queue)
        assert answer.status_code == 200, answer.text
        assert set(re.findall(r'"(\w+)":', expected)) <= set(re.findall(r'"(\w+)":', answer.text))
        assert isinstance(answer.json(), list) == expected.startswith("[")


def logits(text: str, query: str | None = None) -> list[float]:
    """Returns the logits of a text or of a pair by the simulated classifier."""
    digest = hashlib.sha256((text if query is None else f"{query}\0{text}").encode()).digest()
    return [each / 255 * 16 - 8 for each in digest[:3]]


def probabilities(text: str, query: str | None = None) -> list[float]:
    """Returns the softmax of these logits."""
    powers = [math.exp(each) for each in logits(text, query)]
    return [each / sum(powers) for each in powers]


def test_the_body_of_open_webui(gateway: GatewayProcess) -> None:
    """It names all documents as top_n, sorts the results by index, and reads the scores."""
    body = {"model": queue_of(gateway), "query": QUERY, "documents": MANY, "top_n": len(MANY)}
    answer = post(gateway, "/v1/rerank", body, authorization="Bearer any", x_openwebui_user_name="a")
    assert answer.status_code == 200, answer.text
    results = sorted(answer.json()["results"], key=lambda each: int(each["index"]))
    assert [each["relevance_score"] for each in results] == pytest.approx([score(QUERY, text) for text in MANY])
    refused = post(gateway, "/v1/rerank", body | {"model": "unknown"}, authorization="Bearer any")
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
    assert refused.json()["message"].startswith("There is no such model here. Served: ")


def test_an_instruction_goes_with_each_pair(gateway: GatewayProcess) -> None:
    """In vLLM's and in SGLang's words; a model of embeddings refuses it."""
    queue, task = queue_of(gateway), "Find animals."
    body = {"model": queue, "query": QUERY, "documents": MANY, "use_activation": False}
    for fields in ({"instruction": task}, {"instruct": task}):
        answer = post(gateway, "/v1/rerank", body | fields)
        assert answer.status_code == 200, answer.text
        for each in answer.json()["results"]:
            expected = logit(f"{task}\0{QUERY}", MANY[each["index"]])
            assert each["relevance_score"] == pytest.approx(expected, abs=1e-5)
    pairs = {"model": queue, "text_1": QUERY, "text_2": "a dog", "instruction": task}
    [scored] = post(gateway, "/score", pairs).json()["data"]
    assert scored["score"] == pytest.approx(score(f"{task}\0{QUERY}", "a dog"), abs=1e-6)
    refused = post(gateway, "/v1/rerank", body | {"model": f"{queue}-null", "max_tokens_per_doc": 9})
    assert (refused.status_code, "max_tokens_per_doc" in refused.json()["message"]) == (400, True)


@pytest.mark.parametrize("path", ["/score", "/v1/score"])
def test_pairs_are_scored_in_their_order(gateway: GatewayProcess, path: str) -> None:
    """Of one query with a hundred texts, or each with its own; and a classifier scores nothing."""
    queue = queue_of(gateway)
    queries = [f"query {number // 3}" for number in range(len(MANY))]
    for firsts in ([QUERY], queries):
        body = {"model": queue, "queries": firsts, "documents": MANY}
        answer = post(gateway, path, body)
        assert answer.status_code == 200, answer.text
        pairs = zip(firsts * (len(MANY) // len(firsts)), MANY, strict=True)
        assert [each["score"] for each in answer.json()["data"]] == [
            pytest.approx(score(query, text), abs=1e-6) for query, text in pairs
        ]
    assert abs(answer.json()["created"] - time.time()) < 60
    refused = post(gateway, path, {"model": f"{queue}-labels", "text_1": "q", "text_2": "a"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "unsupported_operation")


@pytest.mark.parametrize("path", ["/classify", "/v1/classify"])
def test_texts_are_classified_for_clients_of_vllm(gateway: GatewayProcess, path: str) -> None:
    """With the label of the highest probability; a reranker has one label, and a model of embeddings none."""
    queue = queue_of(gateway)
    answer = post(gateway, path, {"model": f"{queue}-labels", "input": TEXTS})
    assert answer.status_code == 200, answer.text
    for text, each in zip(TEXTS, answer.json()["data"], strict=True):
        assert each["probs"] == pytest.approx(probabilities(text), abs=1e-6)
        assert each["label"] == f"LABEL_{max(range(3), key=logits(text).__getitem__)}"
    alone = post(gateway, path, {"model": queue, "input": "a"}).json()["data"]
    assert [(each["label"], each["num_classes"]) for each in alone] == [("LABEL_0", 1)]
    refused = post(gateway, path, {"model": f"{queue}-null", "input": "a"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "unsupported_operation")


@pytest.mark.parametrize("path", ["/predict", "/v1/predict"])
def test_the_model_decides_what_predict_takes(gateway: GatewayProcess, path: str) -> None:
    """A classifier answers in TEI's words, whether a header or the body names it; other models in Redbatch's."""
    name = f"{queue_of(gateway)}-labels"
    found = post(gateway, path, {"inputs": [["a"], ["b", "c"]]}, x_model=name)
    assert found.status_code == 200, found.text
    assert "x-compute-tokens" in found.headers
    expected = probabilities("a"), probabilities("c", "b")
    for labels, scores in zip(found.json(), expected, strict=True):
        assert [each["score"] for each in labels] == pytest.approx(sorted(scores, reverse=True), abs=1e-6)
    single = post(gateway, path, {"inputs": "a", "model": name})
    assert single.status_code == 200, single.text
    assert {each["label"]: each["score"] for each in single.json()} == {
        f"LABEL_{index}": pytest.approx(each, abs=1e-6) for index, each in enumerate(probabilities("a"))
    }
    own = post(gateway, path, {"input": "a"}, x_model=name)
    assert (own.status_code, error_of(own)["code"]) == (400, "unsupported_operation")
    other = post(gateway, path, {"inputs": ["a"]}, x_model=f"{queue_of(gateway)}-null")
    assert (other.status_code, error_of(other)["code"]) == (400, "unsupported_operation")


@pytest.mark.parametrize("path", ["/", "/invocations"])
def test_teis_default_route_of_a_classifier_is_predict(gateway: GatewayProcess, path: str) -> None:
    """Of one text, of a pair and of several; the model is named by the header, as on all routes of TEI."""
    name = f"{queue_of(gateway)}-labels"
    for inputs in ("a", ["a", "b"], [["a"], ["b", "c"]]):
        found = post(gateway, path, {"inputs": inputs, "model": "unknown"}, x_model=name)
        assert found.status_code == 200, found.text
        assert found.json() == post(gateway, "/predict", {"inputs": inputs}, x_model=name).json()
        assert "x-compute-tokens" in found.headers
    assert post(gateway, path, {"inputs": "a"}, prefer="respond-async", x_model=name).status_code == 200


@pytest.mark.parametrize("path", ["", "/invocations", "/predict"])
def test_hugging_faces_client_with_a_classifier(gateway: GatewayProcess, path: str) -> None:
    """The client of TEI's makers classifies; it has no method that ranks."""
    client = InferenceClient(
        model=f"{gateway.url}{path}", token="none", headers={"X-Model": f"{queue_of(gateway)}-labels"}
    )
    found: Any = client.text_classification("a")  # of a list of labels, as TEI returns it, it returns the first
    assert max(range(3), key=logits("a").__getitem__) == int(found.label.removeprefix("LABEL_"))


@pytest.mark.leaves_anything
async def test_scores_are_cached_by_query_and_text(cluster: GatewayCluster) -> None:
    """Whatever the form of the answer: the cache holds logits. Another query is another pair."""
    worker, gateway = await asyncio.gather(
        cluster.start_worker(RERANKER), cluster.start_gateway(cache_bytes=10_000_000)
    )

    def run(query: str, **more: object) -> list[dict[str, Any]]:
        answer = plain_http.post(f"{gateway.url}/rerank", json={"query": query, "texts": TEXTS, **more}, timeout=30)
        assert answer.status_code == 200, answer.text
        ranked: list[dict[str, Any]] = answer.json()
        return ranked

    def is_cached() -> bool:
        before = gateway.metric("redbatch_cache_hits_total")
        run(QUERY)
        return gateway.metric("redbatch_cache_hits_total") == before + len(TEXTS)

    await wait_until(is_cached, "the scores are cached")
    num_run = metric(worker, "redbatch_inputs_total")
    raw = run(QUERY, raw_scores=True)
    assert [each["score"] for each in raw] == pytest.approx([logit(QUERY, TEXTS[i]) for i in order(QUERY, TEXTS)])
    assert metric(worker, "redbatch_inputs_total") == num_run
    assert [each["index"] for each in run("another query")] == order("another query", TEXTS)
    assert metric(worker, "redbatch_inputs_total") == num_run + len(TEXTS)
    body = {"query": QUERY, "documents": TEXTS, "instruction": "Find animals."}
    assert plain_http.post(f"{gateway.url}/v1/rerank", json=body, timeout=30).status_code == 200
    assert metric(worker, "redbatch_inputs_total") == num_run + 2 * len(TEXTS)


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_answers_have_the_keys_of_the_examples(gateway: GatewayProcess, path: str) -> None:
    """Each example of a body is answered as one of the examples of answers shows."""
    keys = {
        frozenset(each) if isinstance(each, dict) else "array"
        for each in examples_of(ANSWERS[f"post {path} 200"][JSON])
    }
    for example in examples_of(BODIES[path][JSON]):
        body = example | ({"model": queue_of(gateway)} if "model" in example else {})
        answer = post(gateway, path, body, x_model=queue_of(gateway))
        assert answer.status_code == 200, answer.text
        assert (frozenset(answer.json()) if isinstance(answer.json(), dict) else "array") in keys


def shown(text: str, queue: str) -> str:
    """Returns an answer without what differs from run to run: the names of queues, and times."""
    text = re.sub(r"Served: [^\"]*\.", "Served: ....", text.replace(queue, QUEUE))
    text = re.sub(r"these do: [^\"]*\. Name", "these do: .... Name", text)
    text = re.sub(r"(X-Model\. \S+ offers:) [a-z_, ]+\.", r"\1 ....", text)
    return re.sub(r"try again in [0-9.]+ s\.", "try again in ... s.", text)


@pytest.mark.parametrize("case", ERROR_CASES, ids=lambda case: f"{case.path} {case.status}")
def test_each_error_of_the_tables(gateway: GatewayProcess, case: ErrorCase) -> None:
    """Status and body are those of the API that the client knows."""
    queue = queue_of(gateway)
    content = case.body if isinstance(case.body, str) else json.dumps(case.body)
    headers = {"content-type": "application/json", "x-request-id": REQUEST_ID}
    if case.model:
        headers["x-model"] = case.model.replace(QUEUE, queue)
    answer = plain_http.post(
        gateway.url + case.path, content=content.replace(QUEUE, queue), headers=headers, timeout=60
    )
    assert (answer.status_code, json.loads(shown(answer.text, queue))) == (case.status, case.error)


MODEL_ERRORS: list[tuple[Failure | Vectors, list[int], tuple[str, str, str], tuple[str, str]]] = [
    (
        TOO_LONG,
        [422, 400, 400, 400, 422],
        (LONG, "invalid_request", "invalid_request_error"),
        (LONG_FOR_TEI, "Validation"),
    ),
    (
        failure("input_failed", FAILED),
        [424, 500, 500, 500, 424],
        (FAILED, "input_failed", "server_error"),
        (f"Backend error: {FAILED}", "Backend"),
    ),
    (NAN, [424, 500, 500, 500, 424], (NOT_A_NUMBER, "input_failed", "server_error"), (NOT_A_NUMBER, "Backend")),
]


async def test_errors_of_models_and_of_time(gateway: GatewayProcess, queue: QueueConnections) -> None:
    """A pair that is too long, a model that fails or returns no number, no answer in time, and no worker that works."""
    worker = FakeWorker(queue)
    await worker.join()
    await wait_until(lambda: gateway.ready_workers(worker.queue) == 1, "the gateway knows the worker")
    for sent, statuses, error, in_tei in MODEL_ERRORS:
        for path, status, expected in zip(TEXT_BODIES, statuses, in_each_format(*error, in_tei), strict=True):
            answer = await worker.answer(gateway, path, sent)
            assert (answer.status_code, answer.json()) == (status, expected), path
    late = in_each_format(LATE, "deadline_exceeded", "server_error", (LATE, "Backend"))
    for path, expected in zip(TEXT_BODIES, late, strict=True):
        answer = await worker.post(gateway, path, x_timeout_ms="50")
        assert (answer.status_code, answer.json()) == (504, expected), path
    await worker.beat(failing="ValueError")
    await wait_until(lambda: gateway.ready_workers(worker.queue) == 0, "the gateway knows that the model fails")
    failing = in_each_format(FAILING, "model_failing", "server_error", (FAILING, "Unhealthy"))
    for path, expected in zip(TEXT_BODIES, failing, strict=True):
        answer = await worker.post(gateway, path)
        assert (answer.status_code, answer.json()) == (503, expected), path
        assert int(answer.headers["retry-after"]) >= 1
    await worker.leave()


UNREAD: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "/rerank": lambda message, code: rerank(message, None, code),
    "/predict": own,
}
"""The errors of paths with several dialects, before the body is read."""


@pytest.mark.parametrize(("index", "path"), list(enumerate(TEXT_BODIES)))
def test_errors_of_keys_and_quotas(guarded: Guarded, index: int, path: str) -> None:
    """No key, one without the scope, and one whose tenant has no tokens left: the answer says when to try again."""
    suffix = "-labels" if path == "/predict" else ""
    for key, status, error, kind in (
        ("", 401, (NO_KEY, "invalid_api_key", "invalid_request_error"), "Validation"),
        (guarded.jobs_key, 403, (NO_SCOPE, "forbidden", "invalid_request_error"), "Validation"),
        (guarded.poor_key, 429, (LIMITED, "rate_limited", "rate_limit_error"), "Overloaded"),
    ):
        headers = {"x_model": guarded.queue + suffix, "x_request_id": REQUEST_ID}
        body = json.loads(json.dumps(TEXT_BODIES[path]).replace(QUEUE, guarded.queue))
        answer = post(guarded.gateway, path, body, **headers, **({"x_api_key": key} if key else {}))
        while status == 429 and answer.status_code == 200:  # a request takes all tokens, of which one comes each second
            answer = post(guarded.gateway, path, body, **headers, **({"x_api_key": key} if key else {}))
        message = f"Model is overloaded. {error[0]}" if status == 429 else error[0]
        expected = in_each_format(*error, (message, kind))[index]
        if status < 429 and path in UNREAD:  # the body, which would say that it is TEI's, is not read
            expected = UNREAD[path](error[0], error[1])
        assert (answer.status_code, json.loads(shown(answer.text, guarded.queue))) == (status, expected)
        assert ("retry-after" in answer.headers) == (status == 429)
