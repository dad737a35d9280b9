"""Tests of `redbatch usage`."""
