"""The boundary between a worker and its engine process: frames, shared memory, and the handle on the process."""
