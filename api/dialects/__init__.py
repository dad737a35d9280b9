"""The wire formats of clients, in the gateway process: from a body to a request, from a result to an answer. Pure.

- base: the base class of all dialects.
- classes: the scores of labels.
- example_errors: the errors that the OpenAPI descriptions show.
- headers: time and lane of a request; the times of its answer.
- job_options: the options of a request that becomes a job.
- long_integers: marks integers that the JSON parser would round.
- native: Redbatch's own API.
- openai: OpenAI's embeddings API.
- operations: the OpenAPI descriptions of the embedding routes.
- parsing: parses bodies into inputs, and checks these.
- predict: user-defined functions.
- ranking: the scores of texts and their order.
- ranking_models: the answers with these as pydantic models, for OpenAPI.
- ranking_operations: the OpenAPI descriptions of the routes that rank texts.
- report_models: what a gateway reports about itself, as pydantic models.
- request: a request and its result, independent of the dialect.
- rerank: the rerank APIs of Cohere, Jina and vLLM.
- response_models: the answers as pydantic models, for OpenAPI.
- strict_body: refuses unknown fields of a body.
- tei: the API of Text Embeddings Inference.
- tei_base: what its dialects have in common.
- tei_predict: its API for classifiers.
- tei_rerank: its rerank API.
- text_options: options of texts: prompt, truncation, dimensions, length.
- vllm: the APIs of vLLM for scores and classes.
- vectors: vectors as JSON and as .npy.
"""
