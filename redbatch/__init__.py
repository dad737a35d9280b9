"""The `redbatch` command line, and nothing else: no other package imports it."""
