"""`make bench-sweep`: batch size and wait against throughput and latency, on a model whose time is a formula.

Pure parts: grid, report. With I/O: loads, plot, and the command.
"""
