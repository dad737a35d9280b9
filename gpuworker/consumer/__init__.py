"""The worker's side of the queue in Redis. Runs in the worker process.

- worker_state: the state that the parts below share.
- claimer: claims entries and sends them to the engine.
- inflight: the entries that are claimed and not yet committed.
- in_progress_marker: records in Redis which entries run, for the count of attempts.
- result_handler: turns results of the engine into answers and the measured rate.
- circuit_breaker: stops the claims of a worker whose model fails on every batch.
- committer: writes answers to Redis, hands entries back, and splits entries of jobs.
- reclaimer: renews entries, drops those that are gone, and takes over those of other workers.
- heartbeat: the worker's heartbeat, and whether it is ready and alive.
- job_feeder: moves inputs of jobs into the lanes.
- circuit_breaker: stops the claims of a worker whose model fails on every batch.
- redis_clock: times of Redis as times of this host.
"""
