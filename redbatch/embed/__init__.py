"""`redbatch embed`: the vectors of a file of texts, through jobs at a gateway. It runs in the process of the command.

- cli: the command with its options and help text.
- checkpoint: finished slices, so that a killed run can be resumed.
- client: HTTP client for the jobs of a gateway.
- command: implementation of the command.
- progress: progress display.
- readers: readers of input files.
- session: sends the slices of a file as jobs.
- writers: writers of output files.
"""
