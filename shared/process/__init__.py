"""What every process of Redbatch needs to run, independent of the queue. Runs in all processes.

- admin_server: the admin port with metrics and health.
- backoff: growing pauses between attempts.
- gc_tuning: rare garbage collections.
- histogram: a metric for what happens thousands of times a second.
- listener: the listening socket, and the limit on open files.
- limited_log: lines that may come by the thousand.
- log_limit: which of many equal lines are written.
- log_text: log lines for people.
- logs: the log on stdout.
- memory: the memory that this process may have.
- parent_death: ends a child when its parent dies.
- redis_advice: what to do about a Redis that has not answered since the start.
- settings: reads settings, and reports invalid ones.
- tasks: waiting and cancelling in asyncio.
- tracebacks: tracebacks without messages.
- tracing: traces of requests, with OpenTelemetry.
- unexpected_replies: error replies of Redis that nothing can be done about.
- version: the version of this installation.
"""
