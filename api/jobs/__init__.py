"""Jobs, in the gateway process: a client submits texts now, and fetches their vectors later.

- routes: the HTTP routes of jobs.
- creation: parses a request for a job and creates the job.
- schema: the body of POST /jobs.
- inputs: a job's input, checked.
- ndjson: parses texts in lines of JSON.
- upload: uploads the inputs of a job to Redis in portions, and creates it.
- store: reads the jobs of one queue, and waits for their end.
- durability: waits until Redis has made its writes durable.
- results: the vectors of a job, as JSON or as a .npy file.
- representation: jobs and their failures as JSON.
- operations: the OpenAPI descriptions of the routes.
"""
