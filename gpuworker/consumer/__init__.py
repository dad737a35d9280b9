"""The worker's side of the queue in Redis. Runs in the worker process.

A queue has one shard or several, each in its own Redis. Of the worker:

- worker_state: the state that the parts below share, and that of each shard.
- inflight: the entries that are claimed and not yet committed.
- worker_status: whether the worker loads, serves or fails; whether it is ready and alive.
- result_handler: turns results of the engine into answers and the measured rate.
- claim_turns: lets one shard claim at a time.
- circuit_breaker: stops the claims of a worker whose model fails on every batch.

Of each shard:

- shard_consumer: the parts below, their connections and their tasks.
- claimer: claims entries.
- entry_intake: adds claimed entries to those in flight, and sends them to the engine.
- in_progress_marker: records in Redis which entries run, for the count of attempts.
- committer: writes answers to Redis, hands entries back, and splits entries of jobs.
- reclaimer: renews entries, drops those that are gone, and takes over those of other workers.
- heartbeat: the worker's heartbeat.
- job_feeder: moves inputs of jobs into the lanes.
- redis_clock: times of Redis as times of this host.
"""
