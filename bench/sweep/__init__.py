"""`make bench-sweep`: throughput and latency by batch size and wait, on a model whose batch time is a formula.

Pure parts: grid, report. With I/O: loads, plot, and the command.
"""
