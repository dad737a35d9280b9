"""The way of a request through the queue, in the gateway process: admission, split, submit, replies, reconcile.

- shards: sends requests to one of several shards of a queue, and those of a dead one to another.
- shard_choice: which shard a request goes to.
- dispatcher: takes requests through one queue or shard, with the parts below.
- chunked_inference: answers requests whose texts run in chunks.
- chunking: where a text is cut into these.
- vector_cache: returns cached vectors and computes the others.
- sharded_cache: the cached vectors of a queue of several shards.
- charges: what tenants pay beside their submits, for cached vectors, and what they get back.
- admission: whether to accept a request, and when a refused client may retry.
- queue_bounds: the bounds of a queue, and of a shard.
- fleet: what the heartbeats of all workers say together.
- monitor_metrics: what the monitor shows in metrics and in the log.
- monitor: the state of Redis and of the fleet, polled.
- size_limits: the size limits of a request that depend on its workers.
- splitting: the entries of a request, and its result from the replies to them.
- cosines: scores of pairs by a model of embeddings.
- coalescing: which requests may share an entry, and how much of them it may have.
- coalescer: sends these in one entry, and gives each its part of the answer.
- producer_spans: the spans of a queue, if requests are traced.
- deadlines: one timer for the deadlines of all requests.
- inflight: one request in flight: its entries, their refs, and their replies.
- submitter: adds entries to the stream and cancels them.
- replies: how replies come back to the requests that wait.
- reconciler: the recovery after a broken connection or a loss of data.
"""
