"""Policy of the worker: values in, decisions out. Pure: no clock, no Redis, no torch."""
