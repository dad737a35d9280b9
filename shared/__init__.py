"""The contract between gateways and workers, and the only connection to Redis. Runs in all processes.

- activity: what workers did in the last seconds, as they report it.
- api_keys: API keys of clients, stored in Redis.
- cache: cached vectors, shared by all gateways of a queue.
- codec: bodies, replies and entries as bytes.
- connection: the only module that connects to Redis.
- consumer: the worker's operations on the queue.
- dead_letters: entries that were given up, for people.
- errors: the tree of errors that cross a process border.
- feed_window: how much of jobs may be in the lanes.
- job_results: reads the results of jobs.
- job_uploads: uploads of jobs, after quota and room are reserved for them.
- jobs: operations on jobs.
- key_table: the documents' tables of Redis keys.
- keys: all keys in Redis, and what each holds.
- gpu_leases: leases of GPUs.
- lua: the scripts that run in Redis.
- long_entries: which entries are long.
- messages: entries, bodies, replies and heartbeats, as values.
- option_words: what an option takes, in words, for errors.
- process: what every process needs to run: settings, logs, an admin port, tracing.
- producer: the gateway's operations on the queue.
- script_arguments: the arguments of the scripts, as named rows.
- scripts: the scripts, loaded.
- settings: settings that gateways and workers share.
- tenants: quotas and limits of tenants.
- tls: TLS to Redis.
- redis_wire: commands and replies over one socket.
"""
