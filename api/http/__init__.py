"""HTTP in the gateway process: connections, bodies, API keys, and errors as responses.

- answer_cycle: answers one request, in one message.
- auth: authenticates API keys.
- body: reads bodies within their bounds.
- client_connection: the client's address, whether it is there and reads, and a task to cancel when it leaves.
- coalescing_transport: writes the head and the body of an answer at once.
- connection_limiter: closes connections that are too many, or whose head does not come.
- connection_table: which connections these are.
- early_error: the answer to a request that the application does not get.
- error_responses: errors as responses, in the client's dialect, logged and counted.
- head_refusal: the answer to a head over its limits.
- host_header: the header Host, and whether a page of another site can have chosen it.
- idle_timer: closes connections without requests.
- lingering_close: answers a request whose body is not read, then closes the connection.
- probes_only: what a connection beyond the limits is for.
- request_log: the log lines of requests.
- root_path: the prefix under which a proxy serves the gateway.
- parsing_protocol: reads requests, their heads within limits, as a uvicorn protocol.
- refusing_protocol: admits a connection, tracks its unsent answer, and refuses what is no request or has no room.
- protocol: the connection, with its requests and answers.
- unanswered_requests: the requests of a connection that are not answered.
- share_holder: the tenant or the address whose share a request takes.
- streamed_answer: answers that are read from Redis while they are sent.
- request_id: the id of a request, in its answer and in the logs.
- upgrade: requests for other protocols, served in this one.
- unsent_limiter: closes connections whose clients do not read their answers.
- unsent_table: which connections these are.
"""
