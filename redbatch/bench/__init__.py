"""`redbatch bench`: puts load on a running server from one process, and reports the results.

- command: runs the command, checks its arguments, and determines the exit code.
- settings: flags of the command.
- target: the server, and requests as bytes.
- texts: texts of the requests, built-in or from a file.
- body_template: bodies for any route, from a template.
- arrivals: times at which an open loop sends its requests.
- run: one benchmark run, from the settings to the result.
- load_generator: the common part of both loops.
- closed_loop: clients that wait for their answers.
- open_loop: requests at scheduled times.
- connector: opens connections.
- connection: one keep-alive connection.
- answers: parses HTTP answers and determines the outcome of a request.
- precise_timer: a timer with a resolution of about 50 µs.
- request_log: start, latency and outcome of each request.
- statistics: figures of a run.
- progress: progress of a run in the terminal.
- report: the result as text and as JSON.
- result_plot: the result as a plot.
- plot_style: the common style of plots.
"""
