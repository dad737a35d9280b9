"""Tests of redbatch.jobs."""
