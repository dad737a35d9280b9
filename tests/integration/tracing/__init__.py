"""Requests that are traced, from the client to the model."""
