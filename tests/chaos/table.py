"""The former name of `report`, under which tests/conftest.py loads the plugin: delete this file with that line."""

from __future__ import annotations

from tests.chaos.report import pytest_addoption, pytest_configure, pytest_terminal_summary

__all__ = ["pytest_addoption", "pytest_configure", "pytest_terminal_summary"]
