"""`redbatch up`: a supervised cluster on this machine, with its private Redis. It runs in the process of the command.

- api_key: the API key that it creates.
- child_spec: command lines and environments of gateways and workers.
- cluster: starts, supervises and stops the processes of a cluster.
- command: entry point of the command.
- console: output of the command.
- data_dir: the folder that keeps the data of its Redis, of one or of several shards.
- line_reader: reads the lines that child processes write to a pipe.
- memory: how much of the machine's memory that Redis may take.
- local_redis: a private Redis server, for `up` and for tests.
- private_folder: the folder of that Redis' socket, and the removal of those that killed ones have left.
- redis_check: checks the Redis of --redis-url.
- redis_log: log lines of that Redis as records.
- supervised_redis: the supervised Redis servers of a cluster.
- restarts: whether and when a child is restarted.
- run_file: the file by which other commands find a running `up`.
- supervisor: keeps one child process running.
"""
