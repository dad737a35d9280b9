"""Policy of the worker, in the worker and the engine process: values in, values out; no clock, Redis, torch or asyncio.

- limits: the limits of a batch, and the share of one runner.
- batching: the plan: the next batch, the inputs that expire, and when to look again.
- composition: which inputs of two lanes make the best batch.
- short_first: whether short inputs go before long ones.
- suspects: when inputs run that an engine may have died of.
- costs: the time of a batch by its tokens, fitted to the batches that ran.
- adaptive_limits: the limits of the next batch: as set, and as learned.
- batch_wait: whether waiting for more inputs pays.
- closed_loop: whether and how soon answered clients send the next inputs.
- fair_share: the tokens that bulk is owed.
- recent_activity: what the worker did in the last seconds, for its heartbeat.
- token_rate: the rate of the engine, measured while it has more to do than one batch takes.
- load_average: the load of the interactive lane, and the rate that it leaves for bulk.
- bulk_limit: the limit of batches that contain bulk while interactive inputs arrive.
- claim_order: from which shard a worker claims next.
- credits: how much a worker may claim.
- retries: how an entry runs again whose run did not end, and which entries a worker keeps.
- circuit: whether a model that fails may have more work.
- hang_timeout: how long an engine may be silent.
- standby: whether a worker that waits too long for a GPU leaves its entries to others.
"""
