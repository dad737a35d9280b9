"""Reranking beside Infinity and `CrossEncoder.predict`: `make bench-rerank`.

requests makes the requests, and load sends them to a server and checks each answer. servers starts the servers, and
offline runs the same pairs without one, in a separate process. pinned compares one worker with two. report has the
table.
"""
