"""Jobs, in the gateway process: a client submits inputs now, and fetches their results later.

- routes: the HTTP routes of jobs.
- acceptance: the answer for an accepted job; requests of computing routes that become jobs.
- creation: parses a request for a job and creates the job.
- schema: the body of POST /jobs.
- inputs: a job's input, checked.
- kinds: texts, pairs, or inputs of a function; the operation on them.
- line_stream: reads a body of lines as it arrives.
- ndjson: parses inputs in lines of JSON.
- upload: uploads the inputs of a job to Redis in portions, and creates it.
- refusals: the errors of uploads and jobs for which there is no room.
- store: reads the jobs of one queue, and waits for their end.
- durability: waits until Redis has made its writes durable.
- results: the results of a job as JSON, or vectors as a .npy file.
- result_form: the form of results: vectors, values, or scores made of logits.
- representation: jobs and their failures as JSON.
- operations: the OpenAPI descriptions of the routes.
"""
