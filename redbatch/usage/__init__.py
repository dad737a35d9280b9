"""`redbatch usage`: what tenants have used. It runs in the process of the command.

- cli: options and help text.
- command: implementation of the command.
- view: the report as text, JSON and CSV.
"""
