"""`redbatch embed`: the vectors of a file of texts, from a gateway. It runs in the process of the command.

`redbatch rerank` runs the same modules, except for `cli` and `vectors`.

- cli: the command with its options and help text.
- checkpoint: finished slices, so that a killed run can be resumed.
- columns: the columns of the input that the output keeps.
- command: implementation of the command.
- gateway_client: HTTP client of a gateway, with retries.
- jobs: embeds slices as jobs.
- output_columns: the columns that the command adds, for JSON and Parquet.
- plan: the options, checked against each other and the input.
- progress: progress display.
- readers: readers of input files.
- requests: embeds slices in requests.
- scope: embeds slices as jobs, or in requests if the API key allows no jobs.
- session: sends the slices of a file, a few at a time.
- standard_input: standard input as a file.
- vectors: what the command computes.
- writers: writers of output files.
"""
