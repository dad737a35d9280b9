"""`redbatch tune`: finds the settings with which your model answers most requests within a latency budget.

Pure parts: points, ladder, space, climb, finals. With I/O: program, stand, session, and what people see: progress,
report.
"""
