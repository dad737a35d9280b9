"""`redbatch embed` sends the options of texts with its jobs, and works with a key of scope embed alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import redis
from sentence_transformers import SentenceTransformer

from gpuworker.model_spec import parse_model
from shared.connection import RedisConnection
from tests import plain_http
from tests.integration.embed.embed_command import check_rows, create_key, embed
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess, null_vector, vector_bytes
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(120)]

LONG = "first " + "filler " * 400 + "last"


def tei_vector(gateway: GatewayProcess, text: str, **options: object) -> bytes:
    """Returns the vector that TEI's route answers for a text, as raw float32."""
    answer = plain_http.post(f"{gateway.url}/embed", json={"inputs": text, **options}, timeout=60)
    return vector_bytes(answer.json()[0])


def errors_of(out: Path) -> list[dict[str, object]]:
    """Returns the errors that a run has written beside its output."""
    lines = out.with_name(f"{out.name}.errors.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


async def test_dimensions_normalize_and_prompt_reach_the_model(cluster: GatewayCluster, tmp_path: Path) -> None:
    """Vectors have the requested length and norm; a prompt that the model lacks is refused before any text is sent."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker())
    source, out = tmp_path / "a.txt", tmp_path / "v.npy"
    source.write_text("a\nb\n")
    done = await embed(gateway, source, out, "--dimensions", "16", "--normalize")
    assert done.returncode == 0, done.stderr
    vectors = np.load(out)
    assert vectors.shape == (2, 16)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    done = await embed(gateway, source, out, "--no-normalize", "--prompt-name", "", "--force")
    assert done.returncode == 0, done.stderr
    check_rows(np.load(out), ["a", "b"])
    done = await embed(gateway, source, tmp_path / "p.npy", "--prompt-name", "query")
    assert done.returncode == 1
    assert "prompt_name: this model has no such prompt; it has none." in done.stderr
    assert not (tmp_path / "p.npy").exists()


async def test_truncation_is_the_requested_one(cluster: GatewayCluster, tmp_path: Path) -> None:
    """A long text is truncated from the side named, or is an error."""
    gateway, _ = await asyncio.gather(cluster.start_gateway(), cluster.start_worker("minilm"))
    source, out = tmp_path / "a.jsonl", tmp_path / "v.npy"
    source.write_text("".join(json.dumps(each) + "\n" for each in ("short", LONG)))
    done = await embed(gateway, source, out, "--truncate", "--truncation-direction", "left")
    assert done.returncode == 0, done.stderr
    left = np.load(out)[1]
    expected = {
        side: np.frombuffer(tei_vector(gateway, LONG, truncation_direction=side), dtype="<f4")
        for side in ("left", "right")
    }
    assert np.allclose(left, expected["left"], atol=1e-5)
    assert not np.allclose(left, expected["right"], atol=1e-5)
    done = await embed(gateway, source, out, "--no-truncate", "--force")
    assert done.returncode == 1
    assert list(np.isnan(np.load(out)).all(axis=1)) == [False, True]
    assert [each["line"] for each in errors_of(out)] == [2]


async def test_a_key_of_scope_embed_is_enough(
    cluster: GatewayCluster, connection: RedisConnection, tmp_path: Path
) -> None:
    """Without the scope jobs, the texts go to /embed: same rows, same errors, no job; other keys are refused."""
    key = await create_key(connection, "embed")
    gateway, _ = await asyncio.gather(cluster.start_gateway(auth="on"), cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    texts: list[str | None] = [f"text {i}" for i in range(700)]
    lines = [json.dumps({"text": text, "id": i}) for i, text in enumerate(texts)]
    lines[300], texts[300] = json.dumps({"text": "x" * 200_000, "id": 300}), None
    lines[500], texts[500] = json.dumps({"text": "", "id": 500}), None
    source, out = tmp_path / "a.jsonl", tmp_path / "v.npy"
    source.write_text("\n".join(lines))
    done = await embed(gateway, source, out, "--key", key, "--slice", "300")
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("no scope jobs") == 1
    assert gateway.errors("forbidden") == 1
    check_rows(np.load(out), texts)
    assert [each["line"] for each in errors_of(out)] == [301, 501]
    assert "too_large" in str(errors_of(out)[0]["error"])
    with redis.Redis.from_url(cluster.redis_url, protocol=2) as client:
        assert client.zcard(cluster.keys.all_jobs) == 0
    none = await embed(gateway, source, out, "--force", "--key", await create_key(connection))
    assert none.returncode == 1
    assert "lacks the scope embed" in none.stderr
    assert "--scope embed" in none.stderr


async def test_a_key_of_scope_jobs_is_enough(
    cluster: GatewayCluster, connection: RedisConnection, tmp_path: Path
) -> None:
    """A key of scope jobs alone is accepted, too, and no message repeats it."""
    key = await create_key(connection, "jobs")
    gateway, _ = await asyncio.gather(cluster.start_gateway(auth="on"), cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    source, out = tmp_path / "a.txt", tmp_path / "v.npy"
    source.write_text("a\n")
    done = await embed(gateway, source, out, "--key", key)
    assert done.returncode == 0, done.stderr
    assert np.load(out)[0].astype("<f4").tobytes() == null_vector("a")
    assert key not in done.stderr + done.stdout


async def test_requests_have_the_options_too(
    cluster: GatewayCluster, connection: RedisConnection, tmp_path: Path
) -> None:
    """With a key of scope embed, the options reach the model as they do in jobs."""
    key = await create_key(connection, "embed")
    gateway, _ = await asyncio.gather(cluster.start_gateway(auth="on"), cluster.start_worker())
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    source, out = tmp_path / "a.txt", tmp_path / "v.npy"
    source.write_text("a\nb\n")
    done = await embed(gateway, source, out, "--key", key, "--dimensions", "8", "--normalize")
    assert done.returncode == 0, done.stderr
    assert np.load(out).shape == (2, 8)
    assert np.allclose(np.linalg.norm(np.load(out), axis=1), 1)
    done = await embed(gateway, source, tmp_path / "p.npy", "--key", key, "--prompt-name", "query")
    assert done.returncode == 1
    assert all("no prompts" in str(each["error"]) for each in errors_of(tmp_path / "p.npy"))


@pytest.mark.parametrize("scope", ["jobs", "embed"])
async def test_what_texts_are_for_reaches_the_model(
    cluster: GatewayCluster, connection: RedisConnection, tmp_path: Path, scope: Literal["jobs", "embed"]
) -> None:
    """In jobs and in requests: as one of its prompts, with an instruction in the place of its task."""
    model = SentenceTransformer(parse_model("minilm").path, device="cpu")
    model.prompts = {"query": "Instruct: Find.\nQuery: ", "document": "passage: "}
    model.save(str(tmp_path / "my-model"))
    key = await create_key(connection, scope)
    gateway, _ = await asyncio.gather(
        cluster.start_gateway(auth="on"), cluster.start_worker(str(tmp_path / "my-model"))
    )
    await wait_until(lambda: gateway.missing() == [], "the gateway sees the worker")
    source, out = tmp_path / "a.txt", tmp_path / "v.npy"
    source.write_text("a\nb\n")
    for options, prompt in (
        (("--input-type", "document"), "passage: "),
        (("--input-type", "query", "--instruction", "Find animals."), "Instruct: Find animals.\nQuery: "),
    ):
        done = await embed(gateway, source, out, "--key", key, "--force", *options)
        assert done.returncode == 0, done.stderr
        assert np.abs(np.load(out) - model.encode(["a", "b"], prompt=prompt)).max() <= 1e-5
