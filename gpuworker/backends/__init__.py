"""Backends: what turns texts into vectors. Only an engine process imports them."""
