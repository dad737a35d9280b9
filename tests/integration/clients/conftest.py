"""A gateway with a null worker behind it, and processes of a test's own, as the tests of a gateway have them."""

from __future__ import annotations

from tests.integration.gateway.conftest import house, said_ready, served

__all__ = ["house", "said_ready", "served"]
