"""The wire formats of clients: from a body to a request, and from a result to an answer. Pure parsing, no queue."""
