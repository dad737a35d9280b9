"""Tests of traces, from the client to the model."""
