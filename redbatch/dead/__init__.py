"""`redbatch dead`: lists, shows, requeues and deletes dead letters. It runs in the process of the command.

- cli: the subcommands with their options and help texts.
- command: implementation of the subcommands.
- view: dead letters as text and table.
"""
