"""`redbatch bench`: load from one process against a running server, and what came of it.

Pure parts: arrivals, texts, target, answers, record, summary. With I/O: connection, alarm, load, session, and what
people see: progress, report, plot.
"""
