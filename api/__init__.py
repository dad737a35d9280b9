"""The gateway: a stateless HTTP server in front of the queue."""
