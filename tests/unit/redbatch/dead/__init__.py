"""Tests of `redbatch dead`."""
