"""`redbatch rerank`: the scores of the texts of a file for queries, from a gateway. It runs in the command's process.

All but what is here is in redbatch.embed.

- cli: the command with its options and help text.
- score_columns: the scores and ranks of rows as columns.
- score_route: scores pairs in requests.
- work: what the command computes.
"""
