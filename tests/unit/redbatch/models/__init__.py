"""Tests of redbatch.models."""
