"""The worker: claims entries, has its engine process run them in batches, and commits the replies."""
