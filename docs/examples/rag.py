"""Finds the passages of your documents that answer a question: chunk, embed as a job, search, rerank.

    python rag.py "What is lost when Redis dies?" ../*.md
    python rag.py "What is lost when Redis dies?" ../*.md --reranker my-reranker

The passages of retrieval-augmented generation (RAG), which a language model would read with the question. Without
--reranker the best passages are ranked by their cosine, with it by a reranker that another worker serves.
"""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path
from typing import Any, NamedTuple

try:
    import httpx
    import numpy as np
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}: run `source .venv/bin/activate` in the checkout of Redbatch, or install httpx and numpy")

MAX_CHARS = 800
"""Of a passage: about as long as MiniLM reads. Longer paragraphs are cut into several."""

CANDIDATES, SHOWN = 20, 3


class Passage(NamedTuple):
    """A part of a file."""

    file: str
    text: str


def passages_of(path: Path) -> list[Passage]:
    """Returns the paragraphs of a file, short ones joined with the next one."""
    passages, text = [], ""
    for paragraph in path.read_text(encoding="utf-8").split("\n\n"):
        for start in range(0, len(paragraph), MAX_CHARS):
            part = paragraph[start : start + MAX_CHARS].strip()
            if text and len(text) + len(part) > MAX_CHARS:
                passages.append(Passage(path.name, text))
                text = ""
            text = f"{text}\n{part}".strip()
    return passages + ([Passage(path.name, text)] if text else [])


class Cluster:
    """The routes of a gateway that this program uses; an error ends it with the gateway's message."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=90)

    def call(self, method: str, path: str, **arguments: Any) -> httpx.Response:  # noqa: ANN401 - of httpx
        """Returns an answer."""
        try:
            answer = self._http.request(method, path, **arguments)
        except httpx.HTTPError as error:
            sys.exit(f"{self._http.base_url} does not answer ({type(error).__name__}): start a cluster, or give --url")
        if answer.is_error:
            sys.exit(f"{method} {path}: {answer.status_code} {answer.text}")
        return answer

    def embed_as_job(self, texts: list[str]) -> np.ndarray:
        """Returns the vectors of many documents: a job waits for no client, and survives the death of any process."""
        job = self.call("POST", "/jobs", json={"texts": texts, "input_type": "document", "normalize": True}).json()
        status = job["status"]
        while status in ("queued", "running"):
            status = self.call("GET", job["status_url"], params={"wait": 60}).json()["status"]
        if status != "done":
            sys.exit(f"the job {job['id']} is {status}: see GET {job['status_url']}")
        result = self.call("GET", job["result_url"], headers={"accept": "application/x-npy"})
        return np.asarray(np.load(io.BytesIO(result.content)))

    def embed_query(self, text: str) -> np.ndarray:
        """Returns the vector of a question, with the model's prompt for queries."""
        body = {"text": text, "input_type": "query", "normalize": True}
        return np.asarray(self.call("POST", "/embed", json=body).json()["embedding"])

    def rerank(self, query: str, texts: list[str], model: str | None) -> list[tuple[int, float]]:
        """Returns the indices of the texts and their scores, the best first."""
        headers = {} if model is None else {"x-model": model}
        ranked = self.call("POST", "/rerank", json={"query": query, "texts": texts}, headers=headers).json()
        return [(each["index"], each["score"]) for each in ranked]


def main() -> None:
    """Writes the best passages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="of a gateway")
    parser.add_argument("--reranker", help="name of a model that reranks; by default the cosine of the vectors")
    arguments = parser.parse_args()
    try:
        passages = [each for path in arguments.files for each in passages_of(path)]
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"cannot read a file: {error}")
    if not passages:
        sys.exit("there is no text in these files")
    cluster = Cluster(arguments.url)
    vectors = cluster.embed_as_job([each.text for each in passages])
    cosines = vectors @ cluster.embed_query(arguments.question)
    found = [passages[i] for i in np.argsort(-cosines)[:CANDIDATES]]
    ranked = cluster.rerank(arguments.question, [each.text for each in found], arguments.reranker)
    for index, score in ranked[:SHOWN]:
        sys.stdout.write(f"{score:.3f} {found[index].file}\n{found[index].text}\n\n")


if __name__ == "__main__":
    main()
