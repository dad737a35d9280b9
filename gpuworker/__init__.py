"""The worker: claims entries, runs them in batches in an engine process, and commits the replies.

- __main__: `python -m gpuworker`, as in a container.
- settings: a worker's settings, for flags and environment variables.
- failure_settings: the part of them about failures.
- lease_settings: the part of them about shared GPUs.
- model_settings: the part of them about the model and how an engine runs it.
- settings_groups: the same settings in groups, for the code that uses them.
- worker_group: the workers of one process, one for each device.
- worker: the parts of one worker, and how they are connected.
- watchdog: kills an engine that hangs.
- memory_meter: measures the memory of the engine, and in use on its GPU.
- metrics: Prometheus metrics of a worker.
- tracing: spans of batches, if requests are traced.
- model_spec: the backend of a model, by its name.
- model_type: what a model is, by its files.
- model_files: reads these files.
- hub: whether the hub, from which a model has to come, answers.
- functions: the protocol of a user's function (public).
- policy: decisions as pure code: values in, values out.
- consumer: the worker's side of the queue in Redis.
- gpu: which GPU an engine uses, and when.
- ipc: the boundary between worker and engine process.
- engine: the engine process.
- backends: how the engine runs a model.
"""
