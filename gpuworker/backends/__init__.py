"""The models that an engine can run. They run in the engine process, and are imported there only.

- acceleration: the choice of how a transformer runs.
- base: the interface between the engine and a model.
- buckets: batches of few shapes.
- cross_encoder: rerankers and classifiers.
- equivalence: the check that another way to run gives the same vectors.
- function: a user's class as a model.
- function_values: the inputs and outputs of such a class.
- function_methods: the methods of that class, and what their results have to be.
- selection: the choice of a backend for a model.
- library_log: what the library of a model says, as records of the log.
- load_advice: what to do about a model that cannot be loaded.
- model_loading: loads a sentence-transformers model and finds out its properties.
- precision: the floating-point format in which a model computes.
- onnx_transformer: a transformer as an ONNX graph.
- packing: batches without padding.
- prepacked_linear: linear layers whose weights are laid out once.
- revision: the revision of a model.
- prompts: the prompts of a model.
- runtimes: ONNX Runtime and OpenVINO.
- sentence: sentence-transformers models that make embeddings.
- sentence_runner: collates and runs the batches of such a model.
- simulated: the models `null` and `simulated`.
- tokenizer: a model's tokenizer.
- tokenizer_threads: how many threads tokenizers use.
- transformer_backend: what the backends of sentence-transformers models have in common.
- transfer: copies batches to the device, and vectors back.
- whole_texts: the inputs of a model whose texts are not tokenized before they run.
"""
