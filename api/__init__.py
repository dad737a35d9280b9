"""The gateway: a stateless HTTP server in front of the queue. Each gateway is one process.

- any_shard: reads what each shard has.
- app: the ASGI application, with a fast path for embedding requests.
- dialects: the wire formats of clients.
- dispatch: the way of a request through the queue.
- errors: statuses, headers and bodies of errors.
- fair_lock: a lock that tenants or addresses get in turns.
- handler: handles one request, from its body to its answer.
- http: connections, bodies, API keys, and errors as responses.
- jobs: requests that are answered later.
- memory_bounds: the memory that a gateway takes at most.
- redis_memory_bounds: the memory of Redis that a queue takes at most.
- memory_budget: bounds the bytes that requests hold, in all and of each tenant or address.
- metrics: Prometheus metrics.
- pages: pages for people.
- queues: the queues that the gateway serves.
- routes: the routes of the main port.
- served_queue: one of these queues: its shards, its cache, and its jobs.
- server: starts, drains and stops the process.
- connection_settings: the settings about connections.
- request_settings: the settings about requests.
- settings: all settings, as flags and variables.
- settings_groups: settings in groups, for the code that uses them.
- state: the state that all routes share.
- tenants: the tenant of a request, and its limits.
- usage: the route that reports what tenants have used.
- usage_recording: counts what they use of the gateway, and writes it to Redis.
- tracing: OpenTelemetry spans; imported only if requests are traced.
"""
