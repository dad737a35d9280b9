"""Tests of `redbatch up` as a real process."""
