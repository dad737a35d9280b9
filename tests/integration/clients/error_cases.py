"""Requests that each row of the error tables of TEI, Cohere, Jina, Voyage and vLLM refuses, with the whole answers."""

from __future__ import annotations

from typing import Any, NamedTuple

QUEUE, REQUEST_ID = "{queue}", "r-1"
RERANKER, CLASSIFIER, EMBEDDING, UNKNOWN = QUEUE, f"{QUEUE}-labels", f"{QUEUE}-null", f"{QUEUE}-unknown"


class ErrorCase(NamedTuple):
    """A request, and the answer to it: in both, QUEUE stands for the name of the queue of the reranker."""

    path: str
    model: str
    body: Any
    status: int
    error: dict[str, Any]


def tei(message: str, kind: str = "Validation") -> dict[str, Any]:
    """Returns an error of TEI's routes."""
    return {"error": message, "error_type": kind}


def cohere(message: str) -> dict[str, Any]:
    """Returns an error of Cohere's routes."""
    return {"id": REQUEST_ID, "message": message}


def openai(
    message: str, param: str | None = None, code: str = "invalid_request", kind: str = "invalid_request_error"
) -> dict[str, Any]:
    """Returns an error of OpenAI's and vLLM's routes."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def rerank(
    message: str, param: str | None = None, code: str = "invalid_request", kind: str = "invalid_request_error"
) -> dict[str, Any]:
    """Returns an error of /rerank and /v1/rerank, for the clients of vLLM, Cohere, Jina and Voyage."""
    return openai(message, param, code, kind) | {"message": message, "detail": message}


def own(message: str, code: str) -> dict[str, Any]:
    """Returns an error of Redbatch's own routes."""
    return {"error": {"code": code, "message": message, "request_id": REQUEST_ID}}


def refusal(queue: str, op: str) -> str:
    """Returns the message for a model that does not offer an operation which others do."""
    return (
        f"The model of queue {queue} does not offer {op}; these do: .... Name one in the field `model`, or in the "
        f"header X-Model. {queue} offers: ...."
    )


MANY = ["a"] * 201
NO_MODEL = "There is no such model here. Served: ...."
NO_DOCUMENTS = "invalid request: list of documents must not be empty"
ONE_FIELD = "Send texts or documents: one of them."
WANTED_DOCUMENTS = "documents: send a list of texts, or of objects with a text; TEI's clients send texts instead."
WANTED_PAIRS = "inputs: send a text, a list of one text or of the two texts of a pair, or a list of such lists."
WANTED_INPUT = "input: send a text, a list of texts, a list of token ids, or a list of such lists; none of them empty."
EMPTY_PAIR, TOO_MANY = (
    "Input validation error: `inputs` cannot be empty",
    "batch size 201 > maximum allowed batch size 200",
)
NO_RERANKER = f"Backend error: model is not a re-ranker model. {refusal(CLASSIFIER, 'score')}"
LIMIT = "201 inputs are over the limit of 200: send fewer at once, or raise the setting max_inputs of the gateway."
NO_SPARSE = "Backend error: Model is not an embedding model with SPLADE pooling"
ONLY_EMBEDS = "It offers: embed, embed_all, tokenize, decode. Send the request to POST /embed."
_RANKED: Any = {"query": "q", "documents": ["a"]}
_NAMED: Any = _RANKED | {"model": RERANKER}

MIXED = [
    ErrorCase("/rerank", RERANKER, _RANKED | {"texts": ["a"]}, 400, rerank(ONE_FIELD, "texts")),
    ErrorCase("/rerank", RERANKER, {"query": "q"}, 400, rerank(WANTED_DOCUMENTS, "documents")),
]
TEI_RERANK = [
    ErrorCase("/rerank", RERANKER, {"query": "q", "texts": []}, 400, tei("`texts` cannot be empty", "Empty")),
    ErrorCase("/rerank", RERANKER, {"query": "", "texts": ["a", ""]}, 400, tei(EMPTY_PAIR, "Empty")),
    ErrorCase("/rerank", CLASSIFIER, {"query": "q", "texts": ["a"]}, 424, tei(NO_RERANKER, "Backend")),
    ErrorCase("/rerank", RERANKER, {"query": "q", "texts": MANY}, 422, tei(TOO_MANY)),
    ErrorCase("/rerank", RERANKER, {"texts": ["a"]}, 422, tei("query: it is missing.")),
    ErrorCase("/rerank", UNKNOWN, {"query": "q", "texts": ["a"]}, 404, tei(NO_MODEL)),
    ErrorCase("/", RERANKER, {"inputs": "a"}, 422, tei("query: it is missing.")),
    ErrorCase("/", CLASSIFIER, {"query": "q", "texts": ["a"]}, 424, tei(NO_RERANKER, "Backend")),
]
TEI_PREDICT = [
    ErrorCase("/predict", CLASSIFIER, {"inputs": ""}, 400, tei(EMPTY_PAIR, "Empty")),
    ErrorCase("/predict", CLASSIFIER, {"inputs": []}, 422, tei(WANTED_PAIRS)),
    ErrorCase("/predict", CLASSIFIER, {"inputs": ["a", "b", "c"]}, 422, tei(WANTED_PAIRS)),
    ErrorCase("/predict", CLASSIFIER, {"inputs": [["a"], ["a", "b", "c"]]}, 422, tei(WANTED_PAIRS)),
    ErrorCase("/predict", CLASSIFIER, {"inputs": [["a"]] * 201}, 422, tei(TOO_MANY)),
    ErrorCase("/", CLASSIFIER, {"inputs": ["a", "b", "c"]}, 422, tei(WANTED_PAIRS)),
    ErrorCase(
        "/predict",
        UNKNOWN,
        {"inputs": ["a"]},
        404,
        own(NO_MODEL, "model_not_found"),
    ),
    # Redbatch's words, as the route is also that of functions: no model here says in which words to refuse.
    ErrorCase(
        "/predict",
        EMBEDDING,
        {"inputs": ["a"]},
        400,
        own(f"The model of queue {EMBEDDING} does not offer predict. {ONLY_EMBEDS}", "unsupported_operation"),
    ),
]
TEI_SPARSE = [
    ErrorCase(
        "/embed_sparse",
        EMBEDDING,
        {"inputs": "a"},
        424,
        tei(
            f"{NO_SPARSE}. The model of queue {EMBEDDING} does not offer embed_sparse. {ONLY_EMBEDS}",
            "Backend",
        ),
    ),
    ErrorCase("/embed_sparse", EMBEDDING, {"inputs": []}, 400, tei("`inputs` cannot be empty", "Empty")),
]
COHERE = [
    ErrorCase("/v2/rerank", "", "{", 400, cohere("The body is not valid JSON: unexpected end of data.")),
    ErrorCase("/v2/rerank", "", _NAMED | {"documents": []}, 400, cohere(NO_DOCUMENTS)),
    ErrorCase("/v2/rerank", "", _RANKED, 422, cohere("model: it is missing.")),
    ErrorCase("/v2/rerank", "", _NAMED | {"query": None}, 422, cohere('query: send a text, or {"text": "..."}.')),
    ErrorCase("/v2/rerank", "", _NAMED | {"documents": "a"}, 422, cohere(WANTED_DOCUMENTS)),
    ErrorCase("/v2/rerank", "", _NAMED | {"top_n": 0}, 422, cohere("top_n: send a whole number of at least 1.")),
    ErrorCase("/v2/rerank", "", _NAMED | {"documents": MANY}, 400, cohere(f"documents: {LIMIT}")),
    ErrorCase("/v2/rerank", "", _NAMED | {"model": UNKNOWN}, 404, cohere(NO_MODEL)),
    ErrorCase("/v2/rerank", "", _NAMED | {"model": CLASSIFIER}, 400, cohere(refusal(CLASSIFIER, "score"))),
    ErrorCase("/v2/embed", EMBEDDING, {}, 422, cohere('Send {"texts": ["...", ...]}, or inputs.')),
    ErrorCase("/v2/embed", EMBEDDING, {"texts": []}, 422, cohere("texts is empty: send at least one text.")),
    ErrorCase(
        "/v2/embed",
        EMBEDDING,
        {"texts": ["a"], "images": ["data:,"]},
        422,
        cohere("images: images are not embedded here: send texts."),
    ),
    ErrorCase(
        "/v2/embed",
        EMBEDDING,
        {"texts": ["a"], "input_type": "x"},
        400,
        cohere("input_type: this model has no prompt for it; it has none."),
    ),
    ErrorCase(
        "/v2/embed",
        EMBEDDING,
        {"texts": ["a"], "embedding_types": ["binary"], "output_dimension": 9},
        400,
        cohere("9 bits make no whole bytes: set the dimensions to a multiple of 8."),
    ),
    ErrorCase("/v2/embed", RERANKER, {"texts": ["a"]}, 400, cohere(refusal(RERANKER, "embed"))),
    ErrorCase("/v1/embed", EMBEDDING, {"texts": []}, 422, cohere("texts is empty: send at least one text.")),
    ErrorCase("/v1/embed", EMBEDDING, {"texts": MANY}, 400, cohere(LIMIT)),
    ErrorCase("/v1/embed", RERANKER, {"texts": ["a"]}, 400, cohere(refusal(RERANKER, "embed"))),
]
JINA_AND_VOYAGE = [
    ErrorCase(
        "/v1/rerank", RERANKER, _RANKED | {"documents": []}, 400, rerank(NO_DOCUMENTS, "documents", "empty_inputs")
    ),
    ErrorCase("/v1/rerank", RERANKER, _RANKED | {"query": ""}, 400, rerank("query: it is empty.", "query")),
    ErrorCase(
        "/v1/rerank",
        RERANKER,
        _RANKED | {"documents": [{"image": "data:,"}]},
        400,
        rerank('documents[0]: send a text, or {"text": "..."}.', "documents"),
    ),
    ErrorCase("/v1/rerank", UNKNOWN, _RANKED, 404, rerank(NO_MODEL, "model", "model_not_found")),
    ErrorCase(
        "/v1/rerank", CLASSIFIER, _RANKED, 400, rerank(refusal(CLASSIFIER, "score"), "model", "unsupported_operation")
    ),
    ErrorCase(
        "/v1/rerank",
        RERANKER,
        _RANKED | {"top_k": 0},
        400,
        rerank("top_k: send a whole number of at least 1.", "top_k"),
    ),
    ErrorCase(
        "/v1/rerank",
        RERANKER,
        _RANKED | {"top_k": 1, "top_n": 1},
        400,
        rerank("Send top_n or top_k: one of them.", "top_k"),
    ),
]
_NAMES = (
    "Send the texts of pairs in queries and documents, or queries and items, or data_1 and data_2, or text_1 and "
    "text_2."
)
VLLM = [
    ErrorCase("/score", RERANKER, {"text_1": "a"}, 400, openai(_NAMES, "text_1")),
    ErrorCase(
        "/score",
        RERANKER,
        {"text_1": [], "text_2": "a"},
        400,
        openai("At least one text element must be given", "text_1", "empty_inputs"),
    ),
    ErrorCase(
        "/score",
        RERANKER,
        {"text_1": "a", "text_2": []},
        400,
        openai("At least one text_pair element must be given", "text_2", "empty_inputs"),
    ),
    ErrorCase(
        "/score",
        RERANKER,
        {"text_1": ["a", "b"], "text_2": ["a"] * 3},
        400,
        openai("Input lengths must be either 1:1, 1:N or N:N", "text_1"),
    ),
    ErrorCase(
        "/score",
        CLASSIFIER,
        {"text_1": "a", "text_2": "b"},
        400,
        openai(refusal(CLASSIFIER, "score"), "model", "unsupported_operation"),
    ),
    ErrorCase(
        "/classify",
        EMBEDDING,
        {"input": "a"},
        400,
        openai(refusal(EMBEDDING, "classify"), "model", "unsupported_operation"),
    ),
    ErrorCase(
        "/score",
        RERANKER,
        {"text_1": "a", "text_2": "b", "normalize": True},
        400,
        openai("normalize: it was removed; send use_activation instead.", "normalize"),
    ),
    ErrorCase(
        "/classify",
        CLASSIFIER,
        {"input": "a", "softmax": False},
        400,
        openai("softmax: it was removed; send use_activation instead.", "softmax"),
    ),
    ErrorCase("/classify", CLASSIFIER, {"input": []}, 400, openai(WANTED_INPUT, "input")),
    ErrorCase(
        "/v1/embeddings",
        "",
        {"input": "a", "model": EMBEDDING, "dimensions": 385},
        400,
        openai("dimensions: the vectors of this model have 384, not 385."),
    ),
]
ERROR_CASES = [*MIXED, *TEI_RERANK, *TEI_PREDICT, *TEI_SPARSE, *COHERE, *JINA_AND_VOYAGE, *VLLM]

LONG = "733 tokens, and the maximum is 512: shorten it, or allow truncate."
LONG_FOR_TEI = (
    "Input validation error: `inputs` must have less than 512 tokens. Given: 733. Allow truncate, or shorten the texts."
)
FAILED = "The model failed on this input (ValueError): the worker's log has the traceback."
NOT_A_NUMBER = "score is NaN"
LATE = (
    "No answer in time: the queue is long, or the model slow or hung. Allow more time, or add workers. "
    "If a worker's log says that the engine hangs, and an input may take that long, raise engine_hang_s."
)
FAILING = "The model fails on every batch (ValueError): try again later; the workers' logs say more."
NO_KEY = "Send an API key: Authorization: Bearer <key>, or x-api-key: <key>."
NO_SCOPE = "This key lacks the scope embed: its scopes are jobs."
LIMITED = "The tenant's rate limit of 1 tokens per second is exceeded: try again in ... s."
TEXT_BODIES: dict[str, Any] = {
    "/rerank": {"query": "a query", "texts": ["a text"]},
    "/v1/rerank": {"query": "a query", "documents": ["a text"]},
    "/v2/rerank": {"model": RERANKER, "query": "a query", "documents": ["a text"]},
    "/score": {"text_1": "a query", "text_2": "a text"},
    "/predict": {"inputs": "a text"},
}
"""A body of one text for each format of errors: of TEI, of /v1/rerank, Cohere, vLLM, and TEI again."""


def in_each_format(message: str, code: str, kind: str, in_tei: tuple[str, str]) -> list[dict[str, Any]]:
    """Returns the bodies of an error for each of TEXT_BODIES; `in_tei` are TEI's message and type."""
    shown = tei(*in_tei)
    return [shown, rerank(message, None, code, kind), cohere(message), openai(message, None, code, kind), shown]
