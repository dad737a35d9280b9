"""The OpenAPI descriptions of Cohere's embedding routes. Pure."""

from __future__ import annotations

from api.dialects.cohere import CohereEmbed, CohereEmbedBody, CohereEmbedV1Body
from api.dialects.cohere_models import CohereEmbedAnswer, CohereEmbedV1Answer, CohereErrorAnswer
from api.dialects.example_errors import COHERE_ERRORS
from api.dialects.operation_headers import HEADERS, MODEL_PARAMETER
from api.dialects.operations import (
    IN_ORDER,
    TAG_COHERE,
    ErrorFormat,
    Operation,
    embedding_answers,
    request_of,
)
from api.dialects.schemas import body_schema

COHERE = ErrorFormat("Cohere", CohereEmbed(), CohereErrorAnswer)
_DESCRIPTION = f"{IN_ORDER}, for each number format"

COHERE_OPERATIONS = {
    "/v2/embed": Operation(
        "Embed, for Cohere's clients",
        request_of(body_schema(CohereEmbedBody), [*HEADERS, MODEL_PARAMETER]),
        embedding_answers(CohereEmbedAnswer, _DESCRIPTION, {COHERE: COHERE_ERRORS}),
        TAG_COHERE,
    ),
    "/v1/embed": Operation(
        "Embed, for clients of Cohere's first version",
        request_of(body_schema(CohereEmbedV1Body), [*HEADERS, MODEL_PARAMETER]),
        embedding_answers(CohereEmbedV1Answer, f"{_DESCRIPTION} that is named", {COHERE: COHERE_ERRORS}),
        TAG_COHERE,
    ),
}
"""By route."""
