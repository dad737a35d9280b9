"""The wire formats of clients, in the gateway process: from a body to a request, from a result to an answer. Pure.

- base: the base class of all dialects.
- chunking: where a text that is too long is cut into chunks.
- cohere: Cohere's embeddings API.
- example_errors: the errors that the OpenAPI descriptions show.
- headers: time and lane of a request; the times of its answer.
- input_types: what a text is for, as one of the model's prompts.
- job_options: the options of a request that becomes a job.
- long_integers: marks integers that the JSON parser would round.
- long_text: the field of that name, and chunks in an answer.
- native: Redbatch's own API.
- openai: OpenAI's embeddings API.
- operations: the OpenAPI descriptions of the embedding routes.
- parsing: parses bodies into inputs, and checks these.
- predict: user-defined functions.
- quantization: vectors in other number formats than float32.
- report_models: what a gateway reports about itself, as pydantic models.
- request: a request and its result, independent of the dialect.
- response_models: the answers as pydantic models, for OpenAPI.
- strict_body: refuses unknown fields of a body.
- tei: the API of Text Embeddings Inference.
- text_options: options of texts: prompt, truncation, dimensions, length.
- vectors: vectors as JSON and as .npy.
"""
