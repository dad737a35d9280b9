"""`redbatch size`: how large a deployment for a rate of requests. It runs in the process of the command.

- cli: options and help text.
- command: implementation of the command.
- estimate: processes, cores and bandwidth, computed from measured figures.
- figures: the measured figures of `measured.json`, which `make bench` writes.
- view: the result as text and JSON.
"""
