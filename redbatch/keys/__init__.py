"""`redbatch keys`: API keys of clients. It runs in the process of the command.

- cli: the subcommands with their options and help texts.
- command: implementation of the subcommands.
"""
