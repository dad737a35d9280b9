"""HTTP in the gateway process: connections, bodies, API keys, and errors as responses.

- auth: authenticates API keys.
- body: reads bodies within their bounds.
- client_connection: the client's address, whether it is still there, and a task to cancel when it leaves.
- error_responses: errors as responses, in the client's dialect, logged and counted.
- lingering_close: answers a request whose body is not read, then closes the connection.
- request_log: the log lines of requests.
- root_path: the prefix under which a proxy serves the gateway.
- protocol: the connection, as a uvicorn protocol.
- request_id: the id of a request, in its answer and in the logs.
"""
