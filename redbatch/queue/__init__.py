"""`redbatch queue`: the state of a queue. It runs in the process of the command.

- cli: options and help text.
- command: implementation of the command.
- view: the state as text and JSON.
"""
