"""Tests of workers that serve a user's function, and the functions that these tests serve."""
