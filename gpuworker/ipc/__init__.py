"""The boundary between a worker and its engine process. Both processes import it; engine_process runs in the worker.

- engine_options: the settings that an engine gets at its start.
- engine_process: the worker's handle on the engine process.
- frame_protocol: the worker's end of the socket.
- framing: frames on the socket, and how they are read.
- messages: the messages in frames, and their codec.
- run_table: which entries the engine runs, in memory that the worker reads.
- shared_memory: memory that carries long messages and the end of the GPU lease.
"""
