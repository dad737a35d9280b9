"""The `redbatch` command line. `api`, `gpuworker` and `shared` do not import it.

It runs in the process that the user starts.

Commands:
- bench: `redbatch bench`, the load generator.
- dead: `redbatch dead`, dead letters.
- embed: `redbatch embed`, the vectors of a file.
- jobs: `redbatch jobs`, jobs of all clients.
- keys: `redbatch keys`, API keys.
- leases: `redbatch leases`, the shared GPUs.
- models: `redbatch models`, the models and their revisions.
- queue: `redbatch queue`, the state of a queue.
- rerank: `redbatch rerank`, the scores of a file.
- redis_users: `redbatch k8s secrets` and `redbatch swarm secrets`, the Redis users.
- size: `redbatch size`, the deployment for a rate of requests.
- tune: `redbatch tune`, the search for good settings.
- usage: `redbatch usage`, what tenants have used.
- up: `redbatch up`, a cluster in one terminal.

Modules:
- __main__: makes `python -m redbatch` the `redbatch` command.
- cli: entry point, which cleans `sys.path` first.
- commands: the commands with their options and help texts.
- completion: completion in shells.
- exit_codes: exit codes, and the error lines that go with them.
- flags: command-line flags generated from settings classes.
- gateway_url: the gateway that a command sends requests to.
- import_path: keeps the current folder out of the import path.
- options: options that several commands share.
- plain_words: help and errors about arguments in the words of this program.
- preconditions: checks before a long run.
- progress: the progress bar of long commands.
- queue_target: the queue that a command works on.
- readiness: the missing parts of a cluster, as a gateway reports them.
- settings_view: `redbatch settings`, the table of all settings.
- run_process: `redbatch gateway` and `redbatch worker`, one process.
- state_printer: prints a state once or again and again.
- tables: the look of printed tables.
- terminal: the only way to the terminal, on which control characters are escaped.
- times: durations and timestamps as people read and write them.
- urls: URLs and command lines to print.
- variables: environment variables that have no effect.
"""
