"""The routes of a gateway, and requests of each that it accepts."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import Any

import numpy as np

FUNCTION = "type-names"
"""The model, and the queue, that serves the function."""

CLASSIFIER, RERANKER = "labels", "ranks"
"""The queues of a classifier and a reranker."""

JOB = b"f" * 37
"""Stands for the public id of a job, which has this length: its queue `null`, a full stop, and 32 digits."""

JSON, NDJSON, OCTETS, NPY = (
    b"application/json",
    b"application/x-ndjson",
    b"application/octet-stream",
    b"application/x-npy",
)


@dataclass(frozen=True)
class Route:
    """A route and bodies of it: JSON documents, or bytes of a type."""

    method: bytes
    path: bytes
    bodies: tuple[Any, ...] = ()
    media_type: bytes = JSON
    fields: tuple[tuple[bytes, bytes], ...] = ()


def npy_file() -> bytes:
    """Returns a small array in .npy format."""
    buffer = io.BytesIO()
    np.save(buffer, np.arange(6, dtype="<f4").reshape(2, 3))
    return buffer.getvalue()


_IN_BASE64 = base64.b64encode(npy_file()).decode()
_TEXTS: Any = {"texts": ["one", "two"], "normalize": True, "timeout_ms": 60_000, "priority": "bulk", "on_error": "null"}
_CHUNKS: Any = {"texts": ["one", "two"], "long_text": "chunks", "output_dtype": "int8", "input_type": "document"}
_PARTS: Any = {"texts": ["one", "two"], "return": ["dense"], "long_text": "error", "output_dtype": "binary"}
_TEI: Any = {"inputs": ["one", [1, 2, 3]], "truncate": True, "truncation_direction": "Right", "normalize": False}
_OPENAI: Any = {"input": ["one", "two"], "model": "null", "encoding_format": "float", "dimensions": 8, "user": "u"}
_QUANTIZED: Any = {
    "input": ["one"],
    "model": "null",
    "long_text": "mean",
    "output_dtype": "ubinary",
    "input_type": "query",
}
_SIMILAR: Any = {"inputs": {"source_sentence": "one", "sentences": ["two"]}, "parameters": {"truncate": True}}
_RANKED: Any = {"query": "one", "texts": ["two", ""], "raw_scores": True, "return_text": True, "truncate": False}
_DOCUMENTS: Any = {"query": "one", "documents": ["two", "three"], "model": "null", "top_n": 1, "priority": 1}
_PREDICT: Any = (
    {"input": {"a": [1, 2.5, None, "x"]}, "model": FUNCTION},
    {"inputs": [1, {"npy": _IN_BASE64}, {"base64": "eHh4"}], "model": FUNCTION, "on_error": "null"},
)
_LABELED: Any = {"inputs": [["one"], ["two", "three"]], "model": CLASSIFIER, "raw_scores": True}
_REQUEST: Any = {"query": {"text": "one"}, "documents": ["two", {"text": "three"}], "model": RERANKER}
_RERANKED: Any = (
    _REQUEST | {"top_n": 1, "return_documents": True, "priority": 1, "use_activation": False},
    _REQUEST | {"top_k": 1, "truncation": False, "return_documents": True},
)
_CLASSIFIED: Any = {"input": ["one", [1, 2]], "model": CLASSIFIER, "use_activation": False, "priority": -1}
_COHERE: Any = (
    {"model": "null", "texts": ["one", "two"], "embedding_types": ["int8"], "truncate": "START", "priority": 1},
    {"model": "null", "inputs": [{"content": [{"type": "text", "text": "one"}]}], "output_dimension": 8},
)
_COHERE_V1: Any = (
    {"texts": ["one", "two"], "truncate": "NONE", "images": None},
    {"texts": ["one"], "model": "null", "embedding_types": ["float", "ubinary"]},
)
_JOB: Any = (
    {"texts": ["one", "two"], "priority": "bulk", "model": "null"},
    {"inputs": [1, [2]], "model": FUNCTION},
    {"texts": ["one", "two"], "truncate": False, "model": CLASSIFIER},
)
_LINES = (b'"one"\n{"text": "two"}\n', b'{"input": 1}\n{"input": {"base64": "eHh4"}}\n')
_FUNCTION_FIELD = ((b"X-Model", FUNCTION.encode()),)
_CLASSIFIER_FIELD = ((b"X-Model", CLASSIFIER.encode()),)
_RERANKER_FIELD = ((b"X-Model", RERANKER.encode()),)

POSTS = (
    Route(b"POST", b"/embed", ({"text": "one"}, _TEXTS, _TEI, _CHUNKS, _PARTS)),
    Route(b"POST", b"/batch_embed", (_TEXTS,)),
    Route(b"POST", b"/predict", _PREDICT),
    Route(b"POST", b"/v1/predict", _PREDICT),
    Route(b"POST", b"/predict", (_LABELED,)),
    Route(b"POST", b"/classify", (_CLASSIFIED,)),
    Route(b"POST", b"/v1/classify", (_CLASSIFIED,)),
    Route(b"POST", b"/predict", (b"\x00\x01\xff",), OCTETS, _FUNCTION_FIELD),
    Route(b"POST", b"/predict", (npy_file(),), NPY, _FUNCTION_FIELD),
    Route(b"POST", b"/v1/embeddings", (_OPENAI, _QUANTIZED)),
    Route(b"POST", b"/embeddings", (_OPENAI,)),
    Route(b"POST", b"/v2/embed", _COHERE),
    Route(b"POST", b"/v2/embed", _COHERE[1:], fields=((b"Prefer", b"respond-async"),)),
    Route(b"POST", b"/v1/embed", _COHERE_V1),
    Route(b"POST", b"/", (_TEI,)),
    Route(b"POST", b"/", ({"inputs": [["one"], ["two", "three"]], "raw_scores": True},), fields=_CLASSIFIER_FIELD),
    Route(b"POST", b"/invocations", (_TEI,)),
    Route(b"POST", b"/embed_all", ({"inputs": ["one"], "prompt_name": None},)),
    Route(b"POST", b"/embed_sparse", ({"inputs": ["one", [1]], "truncate": False},)),
    Route(b"POST", b"/similarity", (_SIMILAR,)),
    Route(b"POST", b"/rerank", (_RANKED, _DOCUMENTS)),
    Route(b"POST", b"/rerank", (_RANKED, *_RERANKED), fields=_RERANKER_FIELD),
    Route(b"POST", b"/v1/rerank", (_RANKED, _DOCUMENTS, *_RERANKED)),
    Route(b"POST", b"/v2/rerank", (_DOCUMENTS, _REQUEST)),
    Route(b"POST", b"/score", ({"text_1": ["one"], "text_2": ["two"], "model": RERANKER},)),
    Route(b"POST", b"/invocations", (_RANKED,)),
    Route(b"POST", b"/v1/score", ({"queries": "one", "items": ["two", "three"]},)),
    Route(b"POST", b"/score", ({"text_1": ["one", "two"], "text_2": ["three", "four"], "use_activation": False},)),
    Route(b"POST", b"/tokenize", ({"inputs": ["one"], "add_special_tokens": True},)),
    Route(b"POST", b"/decode", ({"ids": [[1, 2], [3]], "skip_special_tokens": True},)),
    Route(b"POST", b"/jobs", _JOB),
    Route(b"POST", b"/jobs?normalize=true", (_LINES[0],), NDJSON),
    Route(b"POST", b"/jobs", (_LINES[1],), NDJSON, _FUNCTION_FIELD),
    Route(b"POST", b"/embed", ({"text": "one"},), fields=((b"Prefer", b"respond-async"),)),
)
GETS = (
    Route(b"GET", b"/"),
    Route(b"GET", b"/", fields=((b"Accept", b"text/html"),)),
    Route(b"GET", b"/health"),
    Route(b"GET", b"/livez"),
    Route(b"GET", b"/readyz?exclude=redis"),
    Route(b"GET", b"/ping"),
    Route(b"GET", b"/info"),
    Route(b"GET", b"/metrics"),
    Route(b"GET", b"/docs"),
    Route(b"GET", b"/docs/static/pages.css"),
    Route(b"GET", b"/console"),
    Route(b"GET", b"/console/state"),
    Route(b"GET", b"/console/dead?queue=null"),
    Route(b"GET", b"/console/dead/1-0?queue=null"),
    Route(b"DELETE", b"/console/dead/1-0?queue=null"),
    Route(b"GET", b"/console/jobs?queue=null"),
    Route(b"DELETE", b"/console/jobs/null." + b"0" * 32 + b"?delete_results=true"),
    Route(b"GET", b"/console/history"),
    Route(b"GET", b"/console/tenants"),
    Route(b"GET", b"/console/leases"),
    Route(b"GET", b"/v1/models"),
    Route(b"GET", b"/v1/models/null"),
    Route(b"GET", b"/jobs/" + JOB + b"?wait=0"),
    Route(b"GET", b"/jobs/" + JOB + b"/result?offset=0&limit=10"),
    Route(b"GET", b"/jobs/" + JOB + b"/results", fields=((b"Accept", NPY),)),
    Route(b"DELETE", b"/jobs/null." + b"0" * 32),
    Route(b"HEAD", b"/health"),
    Route(b"OPTIONS", b"/embed"),
)
