"""`redbatch models`: the models of a cluster, with their revisions. It runs in the process of the command.

- cli: subcommands, options and help texts.
- view: the models as text and JSON.
"""
