"""Functions that these tests serve, and what they see of them."""
