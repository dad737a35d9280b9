"""The benchmarks of the repository: `make bench`, `make bench-peers` and so on. Nothing here is shipped.

suite runs the parts of `make bench`: null_model, real_model, redis_cost, gateway_overhead and backends. measurement
measures one load: wrk sends it, cluster runs the servers, cost reads CPU times and the counters of Redis.
"""
