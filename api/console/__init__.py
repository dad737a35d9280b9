"""What the page /console reads, and what an operator does there, in the gateway process.

Each answer is read from Redis once for all viewers.

- routes: the routes that the page reads.
- operations: their OpenAPI descriptions.
- states: the state of all queues.
- state_models: the same as pydantic models.
- history: samples of the last minutes.
- history_sampler: takes them.
- history_models: the history as pydantic models.
- tenant_report: what tenants have used lately, and their limits.
- tenant_rows: one row of that for each tenant.
- tenants_models: the same as pydantic models.
- leases: who holds shared GPUs.
- leases_models: the same as pydantic models.
- action_routes: the routes for dead letters and jobs.
- action_operations: their OpenAPI descriptions.
- action_models: their answers as pydantic models.
- admin_action: the key and the line in the log that each action needs.
- actions: what an operator does with dead letters and jobs.
- lists: dead letters and jobs of a queue.
- shared_reading: an answer that is read once for all viewers.
- shard_reads: reads of all shards in bounded time.
"""
