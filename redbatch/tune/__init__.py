"""`redbatch tune`: finds the settings with which your model answers most requests within a latency budget.

Pure parts: points, load_search, search_space, coordinate_descent, confirmation. With I/O: child_process, testbed,
session, and what people see: progress, report.
"""
