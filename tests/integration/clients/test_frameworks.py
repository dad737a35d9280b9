"""The clients and frameworks of retrieval, unmodified: `make test-frameworks`. They run in separate environments.

LangChain's and LlamaIndex's packages take no current version of Cohere's client, which has a separate environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.peers import environment
from shared.messages import EMBED
from shared.queue_connections import QueueConnections
from tests.integration.clients.conftest import Guarded
from tests.integration.clients.error_cases import LONG, LONG_FOR_TEI
from tests.integration.clients.fake_worker import TOO_LONG, FakeWorker
from tests.integration.clients.test_openai import DOCUMENTS, model_of, unit_vector
from tests.integration.clients.test_rerank import QUERY, TEXTS, order, post, queue_of
from tests.integration.documents.blocks import FRAMEWORKS, Block, blocks
from tests.integration.gateway.gateway_cluster import GatewayCluster, GatewayProcess
from tests.processes import Processes
from tests.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.frameworks, pytest.mark.timeout(600)]

FOLDER = Path(__file__).parent / "frameworks"
REQUIREMENTS = {"frameworks": "requirements.txt", "cohere": "cohere.txt"}
NO_NETWORK = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "no_proxy": "127.0.0.1"}
TOP_N = 7
PASSAGES = [*TEXTS, *(f"passage {number}" for number in range(10))]
Run = Callable[..., Any]
RunCode = Callable[[str, str], str]


@cache
def python_of(name: str) -> Path:
    """Returns the Python of an environment, which takes a minute or two to create."""
    return environment.make_at(environment.FOLDER / name, FOLDER / REQUIREMENTS[name], [], print) / "python"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a script in an environment, with a job on stdin and without a network; returns the JSON that it prints."""

    def run_script(name: str, script: str, **job: object) -> Any:  # noqa: ANN401
        return json.loads(execute(name, tmp_path, [FOLDER / script], json.dumps(job)))

    return run_script


@pytest.fixture
def run_code(tmp_path: Path) -> RunCode:
    """Runs the code of an example in an environment, without a network; returns what it prints."""
    return lambda name, code: execute(name, tmp_path, ["-c", code])


def execute(name: str, folder: Path, arguments: Sequence[str | Path], given: str = "") -> str:
    """Runs the Python of an environment in a folder, without a network; returns what it prints."""
    process = subprocess.run(
        [python_of(name), "-P", *arguments],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **NO_NETWORK},
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("frameworks", "langchain.py"),
        ("frameworks", "llama_index.py"),
        ("frameworks", "cohere_client.py"),
        ("cohere", "cohere_client.py"),
        ("frameworks", "cohere_v1_embed.py"),
        ("cohere", "cohere_v1_embed.py"),
        ("frameworks", "voyage.py"),
        ("frameworks", "litellm_embed.py"),
    ],
)
def test_a_thousand_documents(run: Run, served: GatewayProcess, name: str, script: str) -> None:
    """A framework gets the vectors of 1,000 documents in order, with length 1, and downloads nothing."""
    vectors = run(name, script, url=f"{served.url}/v1", model=model_of(served), texts=DOCUMENTS)
    assert np.abs(np.asarray(vectors) - [unit_vector(text) for text in DOCUMENTS]).max() <= 1e-6


NO_MODEL, NO_DOCUMENTS = "There is no such model here. Served: ", "invalid request: list of documents must not be empty"
NO_TEXTS, TOO_MANY = "`texts` cannot be empty", "batch size 201 > maximum allowed batch size 200"
COHERE = {
    f"{client}, {name}": message
    for client in ("ClientV2", "Client")
    for name, message in (("no documents", NO_DOCUMENTS), ("unknown model", NO_MODEL))
}
LITELLM = {
    f"{provider}, {name}": message
    for provider in ("hosted_vllm", "huggingface", "jina_ai", "cohere")
    for name, message in (
        ("no documents", NO_TEXTS if provider == "huggingface" else NO_DOCUMENTS),
        ("unknown model", NO_MODEL),
    )
}


@pytest.mark.parametrize(
    ("name", "script", "messages"),
    [
        ("cohere", "cohere_rerank.py", COHERE),
        ("frameworks", "cohere_rerank.py", COHERE),
        ("frameworks", "langchain_rerank.py", {"unknown model": NO_MODEL}),
        (
            "frameworks",
            "llama_index_rerank.py",
            {"Cohere, unknown model": NO_MODEL, "TEI, too many texts": "AssertionError()"},
        ),
        ("frameworks", "haystack_rerank.py", {"too many texts": TOO_MANY}),
        ("frameworks", "litellm_rerank.py", LITELLM),
        ("frameworks", "voyage_rerank.py", {"unknown model": NO_MODEL, "no documents": NO_DOCUMENTS}),
    ],
)
def test_texts_are_ranked(run: Run, gateway: GatewayProcess, name: str, script: str, messages: dict[str, str]) -> None:
    """Each client gets the order and the scores of a direct request, and shows the message of each error."""
    direct = post(gateway, "/rerank", {"query": QUERY, "texts": PASSAGES}).json()
    expected = [[each["index"], each["score"]] for each in direct]
    assert [index for index, _ in expected] == order(QUERY, PASSAGES)
    found = run(name, script, url=gateway.url, model=queue_of(gateway), query=QUERY, texts=PASSAGES, top_n=TOP_N)
    assert found["rankings"]
    for client, ranking in found["rankings"].items():
        assert ranking == expected[:TOP_N], client
    assert found["errors"].keys() == messages.keys()
    for case, message in messages.items():
        assert message in found["errors"][case], case


EXAMPLES = [
    each
    for each in blocks(Path(__file__).parents[3] / "docs" / "api.md")
    if each.is_python and re.search(FRAMEWORKS, each.code, re.MULTILINE)
]


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_the_examples_of_the_page_run(run_code: RunCode, gateway: GatewayProcess, example: Block) -> None:
    """Each block for a client, with the addresses and names of this cluster."""
    code = example.code.replace("http://127.0.0.1:8080", gateway.url).replace("minilm", f"{queue_of(gateway)}-null")
    run_code("cohere" if "import cohere" in code else "frameworks", code)


WRONG, NO_KEY = "does not offer score; these do: ", "This key is unknown"
REFUSED, OVERLOADED = "model is not a re-ranker model", "The tenant's rate limit of 1 tokens per second is exceeded"
LITELLM_ERRORS = {
    f"{provider}, {case}": messages
    for provider in ("hosted_vllm", "huggingface", "jina_ai", "cohere")
    for case, messages in (
        ("no documents", ["BadRequestError", NO_TEXTS if provider == "huggingface" else NO_DOCUMENTS]),
        ("wrong model", [WRONG]),
        ("too long", [LONG_FOR_TEI if provider == "huggingface" else LONG]),
        ("no such key", ["AuthenticationError", NO_KEY]),
        ("overloaded", ["RateLimitError", OVERLOADED]),
    )
}
COHERE_ERRORS = {
    f"{client}, {case}": messages
    for client in ("ClientV2", "Client")
    for case, messages in (
        ("no documents", ["BadRequestError 400", NO_DOCUMENTS]),
        ("wrong model", ["BadRequestError 400", WRONG]),
        ("no such key", ["UnauthorizedError 401", NO_KEY]),
        ("overloaded", ["TooManyRequestsError 429", OVERLOADED]),
        ("too long", ["BadRequestError 400", LONG]),
    )
}
WAITS = {"no such key": ["UnauthorizedError 401", NO_KEY], "wrong model": ["BadRequestError 400", WRONG]}
ASSERTION = ["AssertionError()"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (("cohere", "cohere_errors.py"), COHERE_ERRORS),
        (("frameworks", "cohere_errors.py"), COHERE_ERRORS),
        (("frameworks", "langchain_errors.py"), WAITS),
        (
            ("frameworks", "llama_index_errors.py"),
            {f"Cohere, {case}": messages for case, messages in WAITS.items()}
            | {f"TEI, {case}": ASSERTION for case in ("no such key", "wrong model", "overloaded")},
        ),
        (
            ("frameworks", "haystack_errors.py"),
            {
                "no such key": ["RuntimeError", "401", NO_KEY],
                "wrong model": ["RuntimeError", "424", REFUSED],
                "overloaded": ["429"],
            },
        ),
        (("frameworks", "litellm_errors.py"), LITELLM_ERRORS),
        (
            ("frameworks", "voyage_errors.py"),
            {
                "no such key": ["AuthenticationError", NO_KEY],
                "wrong model": ["InvalidRequestError", WRONG],
                "too long": ["InvalidRequestError", LONG],
                "overloaded": ["RateLimitError", OVERLOADED],
            },
        ),
    ],
)
async def test_errors_are_shown(
    run: Run,
    guarded: Guarded,
    classifying: GatewayProcess,
    queue: QueueConnections,
    script: tuple[str, str],
    expected: dict[str, list[str]],
) -> None:
    """Each client shows the status and the message; clients that heed Retry-After wait, and succeed."""
    worker = FakeWorker(queue, (EMBED,))
    await worker.join()
    await wait_until(lambda: guarded.gateway.ready_workers(worker.queue) == 1, "the gateway knows the worker")
    spent = {"query": "a" * 50_000, "texts": ["b"]}  # of its tokens for hours
    await asyncio.to_thread(post, guarded.gateway, "/rerank", spent, x_api_key=guarded.poor_key)
    job = {
        "url": guarded.gateway.url,
        "labels_url": classifying.url,
        "model": guarded.queue,
        "long": worker.queue,
        "labels": f"{guarded.queue}-labels",
        "key": guarded.key,
        "poor_key": guarded.poor_key,
        "slow_key": guarded.slow_key,
    }
    num_limited = guarded.gateway.errors("rate_limited", guarded.queue)
    call = asyncio.create_task(asyncio.to_thread(lambda: run(*script, **job)))
    found = await worker.refuse_until(call, TOO_LONG)
    await worker.leave()
    assert found["errors"].keys() == expected.keys()
    for case, messages in expected.items():
        assert all(each in found["errors"][case] for each in messages), (case, found["errors"][case])
    assert guarded.gateway.errors("rate_limited", guarded.queue) > num_limited


@pytest.fixture(scope="module")
def classifying(guarded: Guarded, redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway whose default model is a classifier, for clients of TEI, which name no model."""
    labels = f"{guarded.queue}-labels"
    cluster = GatewayCluster(Processes(tmp_path_factory.mktemp("labels")), redis_url, labels)

    async def start() -> GatewayProcess:
        started = await cluster.start_gateway(all_queues=True)
        await wait_until(lambda: started.ready_workers(labels) == 1, "the gateway knows the worker", timeout_s=30)
        return started

    async def stop() -> None:
        async with cluster.processes:
            pass

    with asyncio.Runner() as runner:
        started = runner.run(start())
    yield started
    with asyncio.Runner() as runner:
        runner.run(stop())
