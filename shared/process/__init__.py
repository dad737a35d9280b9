"""What every process of Redbatch needs to run, independent of the queue. Runs in all processes.

- admin_server: the admin port with metrics and health.
- backoff: growing pauses between attempts.
- gc_tuning: rare garbage collections.
- listener: the listening socket, and the limit on open files.
- logs: JSON lines on stdout.
- parent_death: ends a child when its parent dies.
- settings: reads settings, and reports invalid ones.
- tasks: waiting and cancelling in asyncio.
- tracing: traces of requests, with OpenTelemetry.
- version: the version of this installation.
"""
