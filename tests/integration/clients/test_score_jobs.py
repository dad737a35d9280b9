"""Jobs of pairs and of labels, and `redbatch rerank`, with simulated models, whose logits are known."""

from __future__ import annotations

import io
import json
import math
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from redbatch.commands import app
from tests import plain_http
from tests.integration.clients.test_rerank import logit, queue_of, score
from tests.integration.gateway.gateway_cluster import GatewayProcess, error_of
from tests.integration.gateway.job_client import JobClient
from tests.users import as_user

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


def test_a_job_has_the_score_of_each_document(gateway: GatewayProcess, redis_url: str, tmp_path: Path) -> None:
    """In the order of the documents, in pages, and as a file: after the activation, or logits for `raw_scores`.

    `redbatch jobs results` writes the logits.
    """
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
    out = tmp_path / "logits.npy"
    words = ["results", new_job["id"], "-o", str(out), "--redis-url", as_user(redis_url, "admin")]
    assert CliRunner().invoke(app, ["jobs", *words]).exit_code == 0
    assert np.load(out)[:, 0] == pytest.approx(logits, abs=1e-5)
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


def test_the_pairs_of_a_job_have_an_instruction(gateway: GatewayProcess) -> None:
    """As on /rerank, in one document as in lines; a simulated model has a place for one."""
    client = JobClient(gateway, x_model=queue_of(gateway))
    body, instruction = {"query": "a", "documents": TEXTS[:2]}, {"instruction": "Be brief."}
    lines = [{"query": "a", "text": each} for each in TEXTS[:2]]
    headers = {"x-model": queue_of(gateway)}
    found = plain_http.post(f"{gateway.url}/rerank", json=body | instruction, headers=headers, timeout=30).json()[
        "results"
    ]
    scores = [each["relevance_score"] for each in sorted(found, key=itemgetter("index"))]
    assert scores != pytest.approx([score("a", each) for each in TEXTS[:2]], abs=1e-5)
    for answer in (client.post(body | instruction), client.post_lines(lines, query=instruction)):
        new_job = client.job_of(answer)
        run(client, new_job)
        assert results(client, new_job) == pytest.approx(scores, abs=1e-5)


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


PAIR, TEXT, VALUE = {"query": "a", "text": "b"}, "a", {"input": 1}


@pytest.mark.parametrize(
    ("suffix", "content", "line", "options", "message"),
    [
        ("-null", {"query": "a", "documents": ["b"]}, PAIR, {}, "does not offer score"),
        ("-labels", {"query": "a", "documents": ["b"]}, PAIR, {}, "does not offer score"),
        ("", {"texts": ["a"]}, TEXT, {}, "does not offer embed"),
        ("", {"inputs": [1]}, VALUE, {}, 'to POST /jobs with {"query": "...", "documents": [...]}.'),
        ("-labels", {"texts": ["a"]}, TEXT, {"normalize": True}, "normalize: a classifier has no such option"),
        ("", {"query": "a", "documents": ["b"]}, PAIR, {"dimensions": 1}, "dimensions: a reranker has no such"),
        ("", {"query": "", "documents": ["b"]}, PAIR | {"query": ""}, {}, "can run. The query is empty."),
    ],
)
def test_a_job_that_the_model_cannot_run_is_refused(
    gateway: GatewayProcess, suffix: str, content: dict[str, Any], line: object, options: dict[str, Any], message: str
) -> None:
    """At once, in one document as in lines, with what to do: another queue that can, or the form of its jobs."""
    client = JobClient(gateway, x_model=queue_of(gateway, suffix))
    for answer in (client.post(content | options), client.post_lines([line], query=options)):
        assert answer.status_code == 400, answer.text
        assert message in error_of(answer)["message"]


def test_the_scores_of_vectors_are_logits_or_nothing(gateway: GatewayProcess) -> None:
    """`raw_scores` of a job of vectors is refused, and so is a value that is no truth value."""
    client = JobClient(gateway, x_model=queue_of(gateway, "-null"))
    new_job = client.job_of(client.post({"text": "a"}))
    run(client, new_job)
    for query, message in (("true", "the results of embed are no scores"), ("1", "send true or false")):
        answer = client.get(f"{new_job['result_url']}?raw_scores={query}")
        assert (answer.status_code, message in error_of(answer)["message"]) == (400, True)


def rerank(gateway: GatewayProcess, source: Path, out: Path, *options: str) -> Result:
    """Runs `redbatch rerank` to its end."""
    words = ["rerank", str(source), "-o", str(out), "--url", gateway.url, "--model", queue_of(gateway), *options]
    return CliRunner().invoke(app, words)


def test_the_command_ranks_the_rows_of_each_query(gateway: GatewayProcess, tmp_path: Path) -> None:
    """In several jobs, beside the columns of the input; a row without a query or a text has an error."""
    rows: list[dict[str, Any]] = [
        {"id": number, "query": QUERIES[number % 2], "text": text} for number, text in enumerate(TEXTS)
    ]
    rows[3]["query"], rows[4]["text"] = 7, ""
    source, out = tmp_path / "rows.jsonl", tmp_path / "scores.jsonl"
    source.write_text("".join(json.dumps(each) + "\n" for each in rows))
    done = rerank(gateway, source, out, "--slice", "30")
    assert done.exit_code == 1, done.output
    assert "98 of 100 texts have scores" in done.stderr
    assert "2 have no score, the first is line 4: no text in 'query'" in done.stderr
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [{name: each[name] for name in ("id", "query", "text")} for each in found] == rows
    assert [(each["score"], each["rank"]) for each in found[3:5]] == [(None, None), (None, None)]
    assert "error" in found[3]
    for query in QUERIES[:2]:
        scored = [each for each in found if each["query"] == query and each["score"] is not None]
        assert [each["score"] for each in scored] == pytest.approx(
            [score(query, each["text"]) for each in scored], abs=1e-5
        )
        ranked = sorted(scored, key=lambda each: each["rank"])
        assert [each["rank"] for each in ranked] == list(range(1, len(ranked) + 1))
        assert [each["score"] for each in ranked] == sorted((each["score"] for each in scored), reverse=True)
    assert rerank(gateway, source, out).exit_code == 2, "the output exists"


def test_the_command_has_one_query_for_lines_of_text(gateway: GatewayProcess, tmp_path: Path) -> None:
    """Without it, the error says how to give one. An output of Parquet has the same columns."""
    source, out = tmp_path / "texts.txt", tmp_path / "scores.parquet"
    source.write_text("\n".join(TEXTS))
    refused = rerank(gateway, source, out)
    assert (refused.exit_code, "give one with --query" in refused.stderr) == (2, True)
    done = rerank(gateway, source, out, "--query", QUERIES[0], "--raw-scores")
    assert done.exit_code == 0, done.output
    table = pq.read_table(out).to_pydict()
    assert list(table) == ["text", "score", "rank", "error"]
    logits = [logit(QUERIES[0], each) for each in TEXTS]
    assert table["score"] == pytest.approx(logits, abs=1e-5)
    assert [TEXTS[table["rank"].index(1)], table["error"]] == [TEXTS[int(np.argmax(logits))], [None] * len(TEXTS)]


def test_the_command_passes_an_instruction(gateway: GatewayProcess, tmp_path: Path) -> None:
    """With the jobs that it creates: the simulated model reads it before the query."""
    source, out = tmp_path / "texts.txt", tmp_path / "scores.npy"
    source.write_text("\n".join(TEXTS))
    done = rerank(gateway, source, out, "--query", QUERIES[0], "--instruction", "Find animals.")
    assert done.exit_code == 0, done.output
    expected = [score(f"Find animals.\0{QUERIES[0]}", each) for each in TEXTS]
    assert np.load(out)[:, 0].tolist() == pytest.approx(expected, abs=1e-5)


def test_the_load_generator_sends_documents_for_a_query(gateway: GatewayProcess, tmp_path: Path) -> None:
    """It counts their pairs, and takes no body besides."""
    out = tmp_path / "run.json"
    words = ["bench", gateway.url, "--rerank", "--inputs-per-request", "5", "--header", f"X-Model: {queue_of(gateway)}"]
    words += ["--requests", "20", "--clients", "2", "--warmup", "0s", "--out", str(out)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert ("/rerank: closed loop" in done.output, "pairs/s" in done.output) == (True, True)
    written = json.loads(out.read_text())
    assert (written["measured"]["ok"], written["settings"]["rerank"]) == (20, True)
    assert written["measured"]["inputs_per_s"] == pytest.approx(5 * written["measured"]["requests_per_s"])
    refused = CliRunner().invoke(app, [*words, "--body", "{}"])
    assert (refused.exit_code, "--rerank has a body: leave out --body" in refused.output) == (2, True)
