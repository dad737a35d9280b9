"""`redbatch jobs`: lists, shows and cancels jobs, and writes their results. It runs in the process of the command.

- cli: the subcommands with their options and help texts.
- command: implementation of the subcommands.
- view: jobs as text and table.
"""
