"""`redbatch tune`: finds the settings with the most requests per second within a latency budget.

- command: runs the command and determines the exit code.
- settings: flags of the command.
- search_space: the settings to search, and their values.
- search: one search, from the defaults to the confirmed settings.
- coordinate_descent: the next candidate to try.
- load_search: the next number of clients to try.
- confirmation: candidates in alternating rounds with the defaults.
- measurement: results of a load and of a candidate.
- load_runner: puts load on the cluster.
- testbed: a private cluster with one worker at a time.
- child_process: a process of the private cluster.
- progress: progress of a search in the terminal.
- report: the result as text and as JSON.
"""
