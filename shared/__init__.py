"""The contract between gateways and workers: messages, codec, errors, keys, scripts, and the one door to Redis."""
