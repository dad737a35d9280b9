"""The engine process: it owns the model and the device, and tokenizes, batches and runs. It uses no Redis.

The fork server forks it.

- deferred_import: defers the import of what an engine does not use.
- delayed_calls: calls that are due later, in one thread.
- error_reporter: exceptions of the model in the log, and by type in results.
- failures: what an error of the model means for an entry.
- forkserver: the process that imports the libraries and forks engines.
- gpu_session: the engine's lock, lease guard and turns on its GPU.
- gpu_turn: when the engine may run on the device.
- host_lock: a lock among the processes of one host.
- inbox: handles the messages from the worker.
- inference: collates batches and runs the model on them.
- suspect_isolation: keeps suspects apart from other inputs.
- lease_guard: ends the engine when its GPU lease expires.
- model_errors: reports of exceptions, and retries after those that pass.
- main: the engine's main program.
- outbox: sends frames to the worker.
- pipeline: tokenize, plan, run, report, each in its own threads.
- postprocess: truncates and normalizes vectors.
- result_frames: encodes the result of a batch.
- batch_runner: waits for batches, runs them and reports their results.
- schedule: the state that the pipeline's threads share under one lock.
- tokenization: turns entries into inputs, or answers tokenizer operations.
- waiting_inputs: the inputs that wait for a batch.
- work: entries, inputs, batches and their results as data.
"""
