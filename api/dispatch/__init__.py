"""The way of a request through the queue: admission, split, submit, replies, reconcile."""
