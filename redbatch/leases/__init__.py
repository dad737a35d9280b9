"""`redbatch leases`: who holds the shared GPUs, and who waits for one. It runs in the process of the command.

- cli: options and help text.
- command: implementation of the command.
- view: the state as text and JSON.
"""
